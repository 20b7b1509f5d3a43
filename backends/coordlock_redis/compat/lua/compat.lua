-- For clients that share names with redis-py's `Lock`, which is the key of that name: while a queue
-- is in use, the key is the queue's. What another program keeps there counts as a contender.
--
-- That contender has no session and no place in `held`. Nothing reports when it leaves, so clients
-- that wait for it look every 100 ms. It is in the queue only while others wait behind it.
local FOREIGN, OURS, POLL_INTERVAL = 'redis-py', 'coordlock ' .. ROOT, 100000

-- The keys that are shared with redis-py expire, so that the policies volatile-* concern them.
EVICTING = '^%a+%-'

-- coordlock's own queues, whose names are no text, have no such key.
local function is_shared(queue) return not string.find(queue, '^\237\177\128') end

local function place(queue) return call('ZSCORE', ROOT .. 'queue:' .. queue, FOREIGN) end

-- Keep the key for so long at least.
local function take(queue, microseconds)
  local milliseconds = math.ceil(microseconds / 1000) + 1
  if call('GET', queue) == OURS and call('PTTL', queue) >= milliseconds then return end
  call('SET', queue, OURS, 'PX', milliseconds)
end

local expiry_of_session = expiry_of
function expiry_of(session)
  if session == FOREIGN then return now + POLL_INTERVAL end
  return expiry_of_session(session)
end

-- A contender has left. While nothing is granted, the key stays until it expires, as earlier grants
-- do.
local function left(queue)
  local key = ROOT .. 'queue:' .. queue
  if call('ZCARD', key) == 1 and call('ZREM', key, FOREIGN) == 1 then
    call('SREM', ROOT .. 'queues', queue)
    call('DEL', ROOT .. 'claims:' .. queue, ROOT .. 'watchers:' .. queue)
  end
  if call('EXISTS', key) == 0 and is_shared(queue) and now >= quiet then
    if redis.pcall('GET', queue) == OURS then call('DEL', queue) end
  end
end

local leave_queue = leave
function leave(queue, id)
  if not leave_queue(queue, id) then return false end
  left(queue)
  return true
end

-- Whether another program has the key; then also what it says of itself.
local function look(queue)
  if not is_shared(queue) then return false end
  local value = call('GET', queue)
  if value and value ~= OURS then
    return true, string.find(value, '^coordlock ') and value or FOREIGN
  end
  if place(queue) then
    leave_queue(queue, FOREIGN)
    if call('EXISTS', ROOT .. 'queue:' .. queue) == 1 then
      -- Until the next heartbeat of the contender that is first now, which is of a live session.
      take(queue, (call('ZRANGE', ROOT .. 'sessions', -1, -1, 'WITHSCORES')[2] or now) - now)
    end
  end
  return false
end

if ARGV[1] == 'open' then
  if CLUSTER == '1' then
    return finish('refused', 'the option compat needs a Redis that is no cluster: there, scripts '
      .. 'reach the keys of one slot alone')
  end
end

if ARGV[1] == 'heartbeat' then
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
