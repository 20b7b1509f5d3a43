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
