-- Read a key or a folder. folder, key or "" for all; queue, id and token of the guard or nothing
-- -> last, values by their keys, versions by their keys
local folder, key = ARGV[FIRST], ARGV[FIRST + 1]
if ARGV[FIRST + 2] and not is_there(ARGV[FIRST + 2], ARGV[FIRST + 3], ARGV[FIRST + 4]) then
  return finish('evicted', ARGV[FIRST + 2])
end
local values, versions = ROOT .. 'values:' .. folder, ROOT .. 'versions:' .. folder
if key == '' then
  return finish('ok', last, call('HGETALL', values), call('HGETALL', versions))
end
local version = call('HGET', versions, key)
if not version then return finish('ok', last, {}, {}) end
return finish('ok', last, {key, call('HGET', values, key)}, {key, version})
