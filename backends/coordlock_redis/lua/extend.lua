-- Let a session expire when its ttl has passed from now on.
local function extend(session, ttl)
  call('ZADD', ROOT .. 'sessions', int(now + ttl), session)
  -- It only grows: data that comes back after a restart may be older than the longest session.
  longest = math.max(longest, ttl)
  call('HSET', KEYS[1], 'ttl', int(longest))
end
