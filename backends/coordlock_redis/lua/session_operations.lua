-- Behind all functions, and before the operation: end what does not count any more.
if not state[1] then -- a new root, or one without its data
  local started, seen = known_to_client()
  begin_anew(seen > 0 and now or started)
elseif state[1] ~= RUN then -- another server
  begin_anew(now)
else
  for _, session in ipairs(call('ZRANGEBYSCORE', ROOT .. 'sessions', '-inf', now)) do
    end_session(session)
  end
end

if ARGV[1] == 'open' then
  -- Begin a session. session, its ttl in microseconds -> last, born, the largest restart_delay
  local session, ttl = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
  local policy = evicting_policy()
  if policy then return finish('evicts', policy) end
  end_what_a_promotion_has_lost()

  -- A user without one of these rights, or memory that is full, is found out now, and not half-way
  -- through another script.
  local REHEARSED = 'DEL;SADD a;SMEMBERS;SREM a;ZADD 1 a;ZINCRBY 1 a;ZRANGE 0 1 WITHSCORES;ZCARD;ZCOUNT 1 1;'
    .. 'ZRANGEBYSCORE 1 1;ZRANGEBYLEX - +;ZRANK a;ZSCORE a;ZREM a;HSET a 1;HSETNX a 1;HGETALL;'
    .. 'HGET a;HEXISTS a;HDEL a;DEL'
  for command, arguments in string.gmatch(REHEARSED, '(%u+)([^;]*)') do
    local words = {}
    for word in string.gmatch(arguments, '%S+') do words[#words + 1] = word end
    call(command, ROOT .. 'rehearsal', unpack(words))
  end
  publish('inbox:' .. INBOX, 'hello')

  extend(session, ttl)
  return finish('ok', last, born, delay)
end

if ARGV[1] == 'heartbeat' then
  -- Extend a session. session, its ttl in microseconds -> born, the largest restart_delay
  local session, ttl = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
  -- Redis refuses the first write of a script that needs memory when it has none left. So this one
  -- begins with a write that needs none: a session shall not end because others filled the memory.
  call('DEL', ROOT .. 'nothing')
  end_what_a_promotion_has_lost()
  -- An operator has set that policy since. Redis does not say which keys it has deleted.
  if evicting_policy() then begin_anew(now) end
  if not expiry_of(session) then return finish('lost', born) end
  extend(session, ttl)
  return finish('ok', born, delay)
end

if ARGV[1] == 'close' then
  -- End a session. session
  end_session(ARGV[FIRST])
  return finish('ok')
end

if ARGV[1] == 'time' then
  -- The server's clock, in microseconds since 1970.
  return finish('ok', now)
end
