-- For clients that share names with redis-py's `Lock`, which is the key of that name: while a queue
-- is in use, the key is the queue's. What another program keeps there counts as a contender.
--
-- That contender has no session and no place in `held`. Nobody tells when it leaves, so clients
-- that wait for it look every 100 ms. It is in the queue only while others wait behind it.
compat.session, compat.pause = 'redis-py', 100000
local FOREIGN, OURS = compat.session, 'coordlock ' .. ROOT

-- coordlock's own queues, whose names are no text, have no such key.
local function is_shared(queue) return not string.find(queue, '^\237\177\128') end

local function place(queue) return call('ZSCORE', ROOT .. 'queue:' .. queue, FOREIGN) end

-- Keep the key for so long at least.
local function take(queue, microseconds)
  local milliseconds = math.ceil(microseconds / 1000) + 1
  if call('GET', queue) == OURS and call('PTTL', queue) >= milliseconds then return end
  call('SET', queue, OURS, 'PX', int(milliseconds))
end

-- Whether another program has the key; then also what it says of itself.
function compat.look(queue)
  if not is_shared(queue) then return false end
  local value = call('GET', queue)
  if value and value ~= OURS then
    return true, string.find(value, '^coordlock ') and value or FOREIGN
  end
  if place(queue) then
    leave(queue, FOREIGN)
    if call('EXISTS', ROOT .. 'queue:' .. queue) == 1 then take(queue, longest) end
  end
  return false
end

-- Make room for a newcomer: take the key, or put who has it into the queue.
function compat.enter(queue, session)
  if not is_shared(queue) then return end
  local is_foreign, label = compat.look(queue)
  if not is_foreign then
    take(queue, expiry_of(session) - now)
  elseif not place(queue) then
    call('ZADD', ROOT .. 'queue:' .. queue, int(change()), FOREIGN)
    call('SADD', ROOT .. 'queues', queue)
    call('HSET', ROOT .. 'claims:' .. queue, FOREIGN, 'lock ' .. FOREIGN .. ' ' .. label)
    has_changed = false -- the newcomer comes behind it
  end
end

-- The other program as a list of contenders, if it has the key and is not in the queue.
function compat.unlisted(queue)
  local is_foreign, label = compat.look(queue)
  if is_foreign and not place(queue) then
    return {0, FOREIGN, last + 1, 'lock ' .. FOREIGN .. ' ' .. label, ''}
  end
end

-- A contender has left. While nothing is granted, the key stays until it expires, as earlier grants
-- do.
function compat.left(queue)
  local key = ROOT .. 'queue:' .. queue
  if call('ZCARD', key) == 1 and call('ZREM', key, FOREIGN) == 1 then
    call('SREM', ROOT .. 'queues', queue)
    call('DEL', ROOT .. 'claims:' .. queue, ROOT .. 'watchers:' .. queue)
  end
  if call('EXISTS', key) == 0 and is_shared(queue) and now >= quiet then
    if redis.pcall('GET', queue) == OURS then call('DEL', queue) end
  end
end

-- Keep the keys of what a session holds. Where somebody has deleted one, and another program has it
-- now, the session's contenders have lost their places.
function compat.extend(session, ttl)
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

-- An operator has removed the other program.
function compat.evict(queue, id)
  if id ~= FOREIGN or not compat.look(queue) then return false end
  call('DEL', queue)
  compat.look(queue)
  return true
end
