if ARGV[1] == 'read' then
  -- Read a key or a folder. folder, key or "" for all; queue, id and token of the guard or nothing
  -- -> last, values by their keys, versions by their keys
  local folder, key = ARGV[FIRST], ARGV[FIRST + 1]
  if ARGV[FIRST + 2] and not is_there(ARGV[FIRST + 2], ARGV[FIRST + 3], ARGV[FIRST + 4]) then
    return finish('evicted', ARGV[FIRST + 2])
  end
  local values, versions = ROOT .. 'values:' .. folder, ROOT .. 'versions:' .. folder
  if key == '' then
    return finish('ok', last, call('HGETALL', values), call('ZRANGE', versions, 0, -1, 'WITHSCORES'))
  end
  local version = call('ZSCORE', versions, key)
  if not version then return finish('ok', last, {}, {}) end
  return finish('ok', last, {key, call('HGET', values, key)}, {key, version})
end

if ARGV[1] == 'names' then
  -- The first names in ranges of a folder, of which each has version 1. folder, how many of each
  -- range, and of each: from, to -> last, names for each range
  local versions, found = ROOT .. 'versions:' .. ARGV[FIRST], {}
  for at = FIRST + 2, #ARGV, 2 do
    table.insert(found, call('ZRANGEBYLEX', versions, ARGV[at], ARGV[at + 1], 'LIMIT', 0, ARGV[FIRST + 1]))
  end
  return finish('ok', last, found)
end

if ARGV[1] == 'write' then
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
    local version = call('ZSCORE', ROOT .. 'versions:' .. ARGV[at + 1], ARGV[at + 2])
    if ARGV[at] == 'expect' and tonumber(version or 0) ~= tonumber(ARGV[at + 3]) then
      return finish('version', ARGV[at + 1] .. ARGV[at + 2], ARGV[at + 3])
    elseif ARGV[at] == 'put' then
      call('HEXISTS', ROOT .. 'values:' .. ARGV[at + 1], ARGV[at + 2])
    end
  end
  local changed, read = {}, {}
  for at = operations, #ARGV, 4 do
    local verb, folder, key = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local values, versions = ROOT .. 'values:' .. folder, ROOT .. 'versions:' .. folder
    if verb == 'put' then
      call('ZINCRBY', versions, 1, key)
      call('HSET', values, key, ARGV[at + 3])
    elseif verb == 'delete' then
      call('ZREM', versions, key)
      call('HDEL', values, key)
    end
    if verb == 'read' then
      -- An empty version stands for no key: a table of Lua ends at what is missing.
      table.insert(read, {call('HGET', values, key) or '', call('ZSCORE', versions, key) or ''})
    elseif verb ~= 'expect' then
      changed['key:' .. folder .. key], changed['folder:' .. folder] = true, true
      change()
    end
  end
  for place in pairs(changed) do publish(place, int(last)) end
  return finish('ok', last, now, read)
end
