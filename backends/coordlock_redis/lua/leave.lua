-- Remove a contender and report that to its own client and those that watch it.
local function leave(queue, id)
  local key, claims = ROOT .. 'queue:' .. queue, ROOT .. 'claims:' .. queue
  local watching = ROOT .. 'watchers:' .. queue
  local token, before = call('ZSCORE', key, id), call('ZRANK', key, id)
  if not token then return false end
  local claim, watchers = call('HGET', claims, id), call('HGET', watching, id) or ''
  call('ZREM', key, id)
  call('HDEL', claims, id, '=' .. id)
  call('HDEL', watching, id)
  if call('EXISTS', key) == 0 then call('SREM', ROOT .. 'queues', queue) end
  change()
  if claim then
    local session = session_of(claim)
    call('HDEL', ROOT .. 'held:' .. session, id)
    watchers = watchers .. ' ' .. inbox_of(session)
  end
  local message = 'left ' .. id .. ' ' .. int(token) .. ' ' .. before .. ' ' .. int(last)
  local reached = {}
  for inbox in string.gmatch(watchers, '[^ +]+') do
    if not reached[inbox] then publish('inbox:' .. inbox, message) end
    reached[inbox] = true
  end
  publish('changes:' .. queue, int(last))
  return true
end
