-- For scripts that look whether Redis deletes keys to make room.

-- The policies that concern the root's keys, which do not expire.
local EVICTING = '^allkeys%-'

local function is_evicting()
  local memory = call('INFO', 'memory')
  local policy = string.match(memory, 'maxmemory_policy:(%S+)') or ''
  if string.match(memory, 'maxmemory:(%d+)') ~= '0' and string.find(policy, EVICTING) then
    return policy
  end
end

-- Redis says how many keys it has deleted, and not which. So any of them may have been the root's,
-- and all sessions end.
local function end_what_may_be_evicted()
  local known = tonumber(call('HGET', KEYS[1], 'evicted') or '')
  local count = tonumber(string.match(call('INFO', 'stats'), 'evicted_keys:(%d+)'))
  if not count or count == known then return end
  call('HSET', KEYS[1], 'evicted', count)
  -- Other policies spare the root's keys. A count of 0 was reset.
  if known and count > 0 and is_evicting() then begin_anew(now) end
end
