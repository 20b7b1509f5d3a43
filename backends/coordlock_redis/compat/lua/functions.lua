-- For clients that share names with redis-py's `Lock`, which is the key of that name: while a queue
-- is in use, the key is the queue's. What another program keeps there counts as a contender.
--
-- That contender has no session and no place in `held`. Nothing reports when it leaves, so clients
-- that wait for it look every 100 ms. It is in the queue only while others wait behind it.
local FOREIGN, OURS, POLL_INTERVAL = 'redis-py', 'coordlock ' .. ROOT, 100000

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
