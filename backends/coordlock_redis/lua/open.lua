-- Begin a session. session, its ttl in microseconds, "1" where keys may be evicted -> last, born, the longest ttl
local session, ttl = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
local policy = is_evicting()
if policy and ARGV[FIRST + 2] ~= '1' then return finish('evicts', policy) end
end_what_a_promotion_has_lost()
end_what_may_be_evicted()

-- A user without one of these rights, or memory that is full, is found out now, and not half-way
-- through another script.
local name = ROOT .. 'rehearsal'
call('DEL', name)
call('SADD', name, 'a')
call('SMEMBERS', name)
call('SREM', name, 'a')
call('ZADD', name, 1, 'a')
call('ZRANGE', name, 0, 1, 'WITHSCORES')
call('ZCARD', name)
call('ZCOUNT', name, 1, 1)
call('ZRANGEBYSCORE', name, 1, 1)
call('ZRANK', name, 'a')
call('ZREM', name, 'a')
call('HINCRBY', name, 'a', 1)
call('HSET', name, 'a', '1')
call('HSETNX', name, 'a', '1')
call('HGETALL', name)
call('HRANDFIELD', name, 1, 'WITHVALUES')
call('HGET', name, 'a')
call('HEXISTS', name, 'a')
call('HDEL', name, 'a')
call('ZSCORE', ROOT .. 'sessions', session)
call('DEL', name)
tell('inbox:' .. INBOX, 'hello')

extend(session, ttl)
return finish('ok', last, born, max_ttl)
