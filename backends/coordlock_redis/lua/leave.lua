-- Remove a contender and tell its own client and those that watch it.
local function leave(queue, id)
  local key, claims = ROOT .. 'queue:' .. queue, ROOT .. 'claims:' .. queue
  local watching = ROOT .. 'watchers:' .. queue
  local before, token, is_last = '0', nil, false
  local first = call('ZRANGE', key, '0', '1', 'WITHSCORES')
  if first[1] == id then
    token, is_last = first[2], not first[3]
  else
    token = call('ZSCORE', key, id)
    if not token then return false end
    before = call('ZRANK', key, id)
  end
  local claim, watchers = call('HGET', claims, id), call('HGET', watching, id)
  if is_last then
    call('DEL', key, claims, watching)
    call('SREM', ROOT .. 'queues', queue)
  else
    call('ZREM', key, id)
    call('HDEL', claims, id, '=' .. id)
    if watchers then call('HDEL', watching, id) end
  end
  change()
  local news = 'left ' .. id .. ' ' .. int(tonumber(token)) .. ' ' .. before .. ' ' .. int(last)
  local told = {}
  if claim then
    local session = session_of(claim)
    call('HDEL', ROOT .. 'held:' .. session, id)
    told[inbox_of(session)] = true
  end
  if watchers then
    for inbox in string.gmatch(watchers, '[^ +]+') do told[inbox] = true end
  end
  for inbox in pairs(told) do tell('inbox:' .. inbox, news) end
  tell('changes:' .. queue, int(last))
  return true
end
