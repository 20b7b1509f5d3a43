-- Write, or nothing. How many guards, and of each: queue, id, token; of each operation: "put",
-- "delete", "expect" or "read", folder, key, the value or version -> last, the time in
-- microseconds, and of each that is read the value and the version
local MAX_MESSAGE = 2048 -- longer ones would fill the server's buffers for slow clients
local guards = tonumber(ARGV[FIRST])
local operations = FIRST + 1 + 3 * guards
for at = FIRST + 1, operations - 1, 3 do
  if not is_there(ARGV[at], ARGV[at + 1], ARGV[at + 2]) then return finish('evicted', ARGV[at]) end
end
for at = operations, #ARGV, 4 do
  -- Of the keys that are written, too: one of another type shall stop the write before it begins.
  local version = call('HGET', ROOT .. 'versions:' .. ARGV[at + 1], ARGV[at + 2])
  if ARGV[at] == 'expect' and tonumber(version or 0) ~= tonumber(ARGV[at + 3]) then
    return finish('version', ARGV[at + 2], ARGV[at + 3])
  elseif ARGV[at] == 'put' then
    call('HEXISTS', ROOT .. 'values:' .. ARGV[at + 1], ARGV[at + 2])
  end
end
local messages, read = {}, {}
local function bulk(text) return '$' .. #text .. '\r\n' .. text .. '\r\n' end
for at = operations, #ARGV, 4 do
  local verb, folder, key = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local values, versions = ROOT .. 'values:' .. folder, ROOT .. 'versions:' .. folder
  local version = '0'
  if verb == 'put' then
    version = int(call('HINCRBY', versions, key, 1))
    call('HSET', values, key, ARGV[at + 3])
  elseif verb == 'delete' then
    call('HDEL', versions, key)
    call('HDEL', values, key)
  end
  if verb == 'read' then
    -- An empty version stands for no key: a table of Lua ends at what is missing.
    table.insert(read, {call('HGET', values, key) or '', call('HGET', versions, key) or ''})
  elseif verb ~= 'expect' then
    local written = bulk(key) .. bulk(version) .. bulk(ARGV[at + 3])
    for _, place in ipairs({'key:' .. folder .. key, 'folder:' .. folder}) do
      messages[place] = (messages[place] or ' ') .. written
    end
    change()
  end
end
for place, written in pairs(messages) do
  publish(place, int(last) .. (#written <= MAX_MESSAGE and written or ''))
end
return finish('ok', last, now, read)
