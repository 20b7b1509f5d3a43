-- Without the inboxes of clients that have no session.
local function living(watchers)
  local clients, kept = {}, {}
  for _, session in ipairs(call('ZRANGE', ROOT .. 'sessions', '0', '-1')) do
    clients[inbox_of(session)] = true
  end
  for inbox in string.gmatch(watchers, '%S+') do
    if clients[string.match(inbox, '^[^+]*')] then kept[#kept + 1] = inbox end
  end
  return table.concat(kept, ' ')
end

-- Have the departure of a contender published to an inbox; behind "+", its values, too.
local function watch(queue, id, inbox)
  local key = ROOT .. 'watchers:' .. queue
  if call('HSETNX', key, id, inbox) == 1 then return end
  local watchers = call('HGET', key, id)
  if not string.find(' ' .. watchers .. ' ', ' ' .. inbox .. ' ', 1, true) then
    local longer = watchers .. ' ' .. inbox
    -- Now and then, because a contender that stays for long is watched by many that come and go.
    if math.floor(#watchers / 1024) < math.floor(#longer / 1024) then longer = living(longer) end
    call('HSET', key, id, longer)
  end
end
