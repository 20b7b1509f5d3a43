EVICTING = '^%a+%-' -- see open.lua

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
