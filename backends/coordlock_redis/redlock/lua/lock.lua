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
