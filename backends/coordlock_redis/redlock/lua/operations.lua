if ARGV[1] == 'lock' then
  -- Lock a key on this server, unless another contender has it. When the server counts, by its clock
  -- in microseconds; key, value, ttl in milliseconds -> the value of whoever has it now
  local clock = redis.call('TIME')
  local early = tonumber(ARGV[2]) - (clock[1] * 1000000 + clock[2])
  if early > 0 then return {'quiet', early} end
  local key, value, ttl = ARGV[3], ARGV[4], ARGV[5]
  local found = redis.call('GET', key)
  if found and found ~= value then return {'ok', found} end
  redis.call('SET', key, value, 'PX', ttl)
  return {'ok', value}
end

if ARGV[1] == 'extend' then
  -- Extend keys. When the server counts, by its clock in microseconds; ttl in milliseconds; key and
  -- value of each -> for each, 1 if it was there. One that is missing, as after a restart, is set
  -- again, and counts from the next time on.
  local clock = redis.call('TIME')
  local counts = clock[1] * 1000000 + clock[2] >= tonumber(ARGV[2])
  local answer = {'ok'}
  for at = 4, #ARGV, 2 do
    local found = redis.call('GET', ARGV[at])
    if found == ARGV[at + 1] then
      redis.call('PEXPIRE', ARGV[at], ARGV[3])
    elseif not found and counts then
      redis.call('SET', ARGV[at], ARGV[at + 1], 'PX', ARGV[3])
    end
    answer[#answer + 1] = found == ARGV[at + 1] and 1 or 0
  end
  return answer
end

if ARGV[1] == 'unlock' then
  -- Delete keys. When the server counts, which does not matter; key and the contender's id of each
  -- -> how many there were
  local count = 0
  for at = 3, #ARGV, 2 do
    local found = redis.call('GET', ARGV[at])
    if found and string.match(found, '^%S+') == ARGV[at + 1] then
      count = count + redis.call('DEL', ARGV[at])
    end
  end
  return {'ok', count}
end
