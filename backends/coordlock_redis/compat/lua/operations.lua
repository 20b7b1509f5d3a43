if ARGV[1] == 'open' then
  if CLUSTER == '1' then
    return finish('refused', 'the option compat needs a Redis that is no cluster: there, scripts '
      .. 'reach the keys of one slot alone')
  end
  -- The keys that are shared with redis-py expire, so that the policies volatile-* concern them.
  EVICTING = '^%a+%-'
end

if ARGV[1] == 'heartbeat' then
  EVICTING = '^%a+%-' -- as at the opening

  -- Keep the keys of what the session holds. Where somebody has deleted one, and another program has it
  -- now, the session's contenders have lost their places.
  local extend_session = extend
  function extend(session, ttl)
    extend_session(session, ttl)
    local held, seen = call('HGETALL', ROOT .. 'held:' .. session), {}
    for at = 1, #held, 2 do
      local id, queue = held[at], held[at + 1]
      if is_shared(queue) then
        if seen[queue] == nil then
          local value = redis.pcall('GET', queue)
          seen[queue] = not value or value == OURS
          if seen[queue] then take(queue, ttl) end
        end
        local token = tonumber(call('ZSCORE', ROOT .. 'queue:' .. queue, id) or 0)
        if not seen[queue] and token < tonumber(place(queue) or math.huge) then
          leave(queue, id)
        end
      end
    end
  end
end

if ARGV[1] == 'enqueue' then
  -- Put the program that has the key into the queue, before a newcomer; whether there is one.
  local function enter(queue)
    local is_foreign, label = look(queue)
    if is_foreign and not place(queue) then
      call('ZADD', ROOT .. 'queue:' .. queue, change(), FOREIGN)
      call('SADD', ROOT .. 'queues', queue)
      call('HSET', ROOT .. 'claims:' .. queue, FOREIGN, 'lock ' .. FOREIGN .. ' ' .. label)
      last = last + 1 -- the newcomer's token
    end
    return is_foreign
  end

  -- A newcomer takes the key, if it is free.
  local rank_in_queue = rank_in
  function rank_in(queue, session)
    if not session then
      look(queue)
    elseif is_shared(queue) and not enter(queue) then
      take(queue, expiry_of(session) - now)
    end
    return rank_in_queue(queue, session)
  end

  local refusal_by_queues = refusal
  function refusal(places)
    for _, at in ipairs(places) do enter(ARGV[at]) end
    local answer = refusal_by_queues(places)
    if answer then
      for _, at in ipairs(places) do left(ARGV[at]) end
    end
    return answer
  end
end

if ARGV[1] == 'snapshot' then
  -- Of a whole queue, also the other program that nobody waits for.
  local part_of_queue = part
  function part(queue, first, stop)
    local found = part_of_queue(queue, first, stop)
    local is_foreign, label = look(queue)
    if stop == -1 and is_foreign and not place(queue) then
      for _, field in ipairs({FOREIGN, last + 1, 'lock ' .. FOREIGN .. ' ' .. label, ''}) do
        found[#found + 1] = field
      end
    end
    return found
  end
  look(ARGV[FIRST]) -- before the contenders are counted
end

if ARGV[1] == 'watch' then
  local is_in_queue = is_there
  function is_there(queue, id, token)
    if id == FOREIGN then look(queue) end
    return is_in_queue(queue, id, token)
  end
end

if ARGV[1] == 'withdraw' then
  -- An operator may remove the other program: its key goes.
  local is_in_queue = is_there
  function is_there(queue, id, token)
    if id == FOREIGN then return look(queue) end
    return is_in_queue(queue, id, token)
  end

  local leave_and_free = leave
  function leave(queue, id)
    if id ~= FOREIGN then return leave_and_free(queue, id) end
    call('DEL', queue)
    look(queue)
    return true
  end
end
