-- Let a session expire when its ttl has passed from now on.
local function extend(session, ttl)
  call('ZADD', ROOT .. 'sessions', int(now + ttl), session)
  call('ZADD', ROOT .. 'ttls', int(ttl), session)
  longest = tonumber(call('ZRANGE', ROOT .. 'ttls', '-1', '-1', 'WITHSCORES')[2])
  call('HSET', KEYS[1], 'ttl', int(longest))
end
