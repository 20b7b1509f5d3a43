-- End a session; its contenders leave.
local function end_session(session)
  local key = ROOT .. 'held:' .. session
  local held = call('HGETALL', key)
  -- Before its contenders leave, which their client would take for evicted.
  publish('inbox:' .. inbox_of(session), 'over ' .. session .. ' ' .. int(born))
  for at = 1, #held, 2 do
    local id, queue = held[at], held[at + 1]
    -- Where another program uses a key of one queue, the contenders in others leave all the same.
    if not pcall(leave, queue, id) then redis.pcall('ZREM', ROOT .. 'queue:' .. queue, id) end
    call('HDEL', key, id)
  end
  call('ZREM', ROOT .. 'sessions', session)
  change()
end

-- The last promotion of this server from a replica to the primary, or '' for none that it knows.
local function promotion()
  local found = call('INFO', 'replication')
  -- By plain text, which is faster than a pattern.
  if string.find(found, 'second_repl_offset:-1', 1, true) then return '' end
  local id = string.match(found, 'master_replid2:(%x+)')
  local offset = string.match(found, 'second_repl_offset:(%d+)')
  return id and offset and id .. ':' .. offset or ''
end

-- Keep the largest restart_delay of all clients. It only grows: data that comes back after a restart may
-- be older than a session. Nothing is granted before it has passed since the time before which grants
-- may have been lost.
local function keep_quiet(since, wanted)
  delay = math.max(delay, wanted)
  quiet = math.max(quiet, since + delay)
  call('HSET', KEYS[1], 'restart_delay', delay, 'since', since, 'quiet', quiet)
end

-- Nothing that was granted before counts any more; it may have been granted until `since`.
local function begin_anew(since)
  local sessions = call('ZRANGE', ROOT .. 'sessions', '0', '-1')
  local _, _, _, largest = known_to_client()
  keep_quiet(since, largest)
  born, promoted = now, promotion()
  change()
  for _, session in ipairs(sessions) do call('DEL', ROOT .. 'held:' .. session) end
  for _, queue in ipairs(call('SMEMBERS', ROOT .. 'queues')) do
    call('DEL', ROOT .. 'queue:' .. queue, ROOT .. 'claims:' .. queue, ROOT .. 'watchers:' .. queue)
  end
  call('DEL', ROOT .. 'queues', ROOT .. 'sessions')
  -- Last: what fails before this does not pass for done.
  call('HSET', KEYS[1], 'run', RUN, 'promoted', promoted, 'born', born, 'last', last)
  -- To all clients, which lose their sessions, and then read all that they observe.
  publish('anew', int(born))
end

-- For scripts that grant or extend: a server that was a replica meanwhile, and is the primary again,
-- has the name of before, and may lack what it has granted.
local function end_what_a_promotion_has_lost()
  local found = promotion()
  -- A server may forget its promotion: only another one counts.
  if found ~= '' and found ~= promoted then begin_anew(now) end
end

-- Let a session expire when its ttl has passed from now on.
local function extend(session, ttl)
  call('ZADD', ROOT .. 'sessions', now + ttl, session)
  -- The first client after a restart may have had a smaller restart_delay, or may not have known that
  -- there was data.
  local _, seen, own = known_to_client()
  local since = tonumber(call('HGET', KEYS[1], 'since') or 0)
  if seen > 0 and seen ~= born then since = math.max(since, born) end
  keep_quiet(math.min(now, since), own) -- where the clock has gone back, it counts from now on
end

-- The policies that concern the root's keys, which do not expire.
local EVICTING = '^allkeys%-'

-- The policy by which Redis deletes keys to make room, or nil.
local function evicting_policy()
  local memory = call('INFO', 'memory')
  local policy = string.match(memory, 'maxmemory_policy:(%S+)') or ''
  if string.match(memory, 'maxmemory:(%d+)') ~= '0' and string.find(policy, EVICTING) then
    return policy
  end
end
