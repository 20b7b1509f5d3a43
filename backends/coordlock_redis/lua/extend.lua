-- Let a session expire when its ttl has passed from now on.
local function extend(session, ttl)
  call('ZADD', ROOT .. 'sessions', now + ttl, session)
  -- The first client after a restart may have had a smaller restart_delay, or may not have known that
  -- there was data.
  local _, seen = known_to_client()
  local since = tonumber(call('HGET', KEYS[1], 'since') or 0)
  if seen > 0 and seen ~= born then since = math.max(since, born) end
  keep_quiet(math.min(now, since), ttl) -- where the clock has gone back, it counts from now on
end
