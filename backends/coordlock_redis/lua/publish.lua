-- Set a contender's value. queue, id, token, the version before, the value
local queue, id, token = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2]
local version, value = tonumber(ARGV[FIRST + 3]), ARGV[FIRST + 4]
if not is_there(queue, id, token) then return finish('evicted') end
local stored = call('HGET', ROOT .. 'claims:' .. queue, '=' .. id) or '1 '
local space = string.find(stored, ' ', 1, true)
local found = tonumber(string.sub(stored, 1, space - 1))
if found == version + 1 and string.sub(stored, space + 1) == value then return finish('ok') end
if found ~= version then return finish('version') end
local watchers = call('HGET', ROOT .. 'watchers:' .. queue, id)
change()
call('HSET', ROOT .. 'claims:' .. queue, '=' .. id, (version + 1) .. ' ' .. value)
for inbox in string.gmatch(watchers or '', '([^ +]+)%+') do
  publish('inbox:' .. inbox, 'value ' .. id .. ' ' .. token .. ' ' .. (version + 1))
end
publish('changes:' .. queue, int(last))
return finish('ok')
