local function end_session(session)
  local held = call('HGETALL', ROOT .. 'held:' .. session)
  call('ZREM', ROOT .. 'sessions', session)
  -- Before its contenders leave: else its client would take them for evicted.
  tell('inbox:' .. inbox_of(session), 'over ' .. session .. ' ' .. int(born))
  for at = 1, #held, 2 do
    local id, queue = held[at], held[at + 1]
    -- Where another program uses a key of one queue, the contenders in others leave all the same.
    if not pcall(leave, queue, id) then redis.pcall('ZREM', ROOT .. 'queue:' .. queue, id) end
  end
  call('DEL', ROOT .. 'held:' .. session)
  change()
end

-- The last promotion of this server from a replica to the primary, or '' for none that it knows.
local function promotion()
  local told = call('INFO', 'replication')
  -- By plain text, which is faster than a pattern.
  if string.find(told, 'second_repl_offset:-1', 1, true) then return '' end
  local id = string.match(told, 'master_replid2:(%x+)')
  local offset = string.match(told, 'second_repl_offset:(%d+)')
  return id and offset and id .. ':' .. offset or ''
end

-- Nothing that was granted before counts any more, and nothing is granted before `time`.
local function begin_anew(time)
  local sessions = call('ZRANGE', ROOT .. 'sessions', '0', '-1')
  -- What is left of an earlier pause goes on; counted from now where the clock has gone back.
  quiet = math.max(time, born <= now and quiet or now + math.max(0, quiet - born))
  born, promoted = now, promotion()
  change()
  for _, session in ipairs(sessions) do end_session(session) end
  for _, queue in ipairs(call('SMEMBERS', ROOT .. 'queues')) do
    call('DEL', ROOT .. 'queue:' .. queue, ROOT .. 'claims:' .. queue, ROOT .. 'watchers:' .. queue)
    tell('changes:' .. queue, int(last))
  end
  call('DEL', ROOT .. 'queues')
  -- Last: what fails before this does not pass for done.
  call('HSET', KEYS[1], 'run', RUN, 'promoted', promoted)
  call('HSET', KEYS[1], 'born', int(born), 'quiet', int(quiet), 'last', int(last))
  tell('anew', int(born)) -- to all clients: which keys are gone is not known here
end

-- The same, once all that was granted before has expired.
local function begin_anew_later()
  local _, _, DELAY = delays()
  begin_anew(now + (DELAY < 0 and longest or DELAY))
end
