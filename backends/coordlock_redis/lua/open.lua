-- Begin a session. session, its ttl in microseconds, "1" where keys may be evicted -> last, born, the longest ttl
local session, ttl = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
local policy = is_evicting()
if policy and ARGV[FIRST + 2] ~= '1' then return finish('evicts', policy) end
end_what_a_promotion_has_lost()
end_what_may_be_evicted()

-- A user without one of these rights, or memory that is full, is found out now, and not half-way
-- through another script.
local REHEARSED = 'DEL;SADD a;SMEMBERS;SREM a;ZADD 1 a;ZRANGE 0 1 WITHSCORES;ZCARD;ZCOUNT 1 1;'
  .. 'ZRANGEBYSCORE 1 1;ZRANK a;ZSCORE a;ZREM a;HINCRBY a 1;HSET a 1;HSETNX a 1;HGETALL;'
  .. 'HRANDFIELD 1 WITHVALUES;HGET a;HEXISTS a;HDEL a;DEL'
for command, arguments in string.gmatch(REHEARSED, '(%u+)([^;]*)') do
  local words = {}
  for word in string.gmatch(arguments, '%S+') do words[#words + 1] = word end
  call(command, ROOT .. 'rehearsal', unpack(words))
end
publish('inbox:' .. INBOX, 'hello')

extend(session, ttl)
return finish('ok', last, born, max_ttl)
