-- Write, or nothing. How many guards, and of each: queue, id, token; of each operation: "put",
-- "delete", "expect" or "read", folder, key, the value or version -> last, the time in
-- microseconds, and of each that is read the value and the version
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
local places, read = {}, {}
for at = operations, #ARGV, 4 do
  local kind, folder, key = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local values, versions = ROOT .. 'values:' .. folder, ROOT .. 'versions:' .. folder
  if kind == 'put' then
    call('HINCRBY', versions, key, 1)
    call('HSET', values, key, ARGV[at + 3])
  elseif kind == 'delete' then
    call('HDEL', versions, key)
    call('HDEL', values, key)
  end
  if kind == 'read' then
    -- An empty version stands for no key: a table of Lua ends at what is missing.
    table.insert(read, {call('HGET', values, key) or '', call('HGET', versions, key) or ''})
  elseif kind ~= 'expect' then
    places['key:' .. folder .. key], places['folder:' .. folder] = true, true
    change()
  end
end
for place in pairs(places) do tell(place, int(last)) end
return finish('ok', last, now, read)
