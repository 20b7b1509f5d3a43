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
  for inbox in string.gmatch(watchers, '%S+') do
    if not reached[inbox] then publish('inbox:' .. inbox, message) end
    reached[inbox] = true
  end
  publish('changes:' .. queue, int(last))
  return true
end

-- How many contenders stand before a newcomer, which is of a session and comes now.
local function rank_in(queue, session) return call('ZCARD', ROOT .. 'queue:' .. queue) end

-- The contenders at the ranks from `first` to `last`, behind how many others they stand: of each its
-- id, token, claim and value.
local function part(queue, first, last)
  local found = call('ZRANGE', ROOT .. 'queue:' .. queue, first, last, 'WITHSCORES')
  local list, claims = {first}, ROOT .. 'claims:' .. queue
  for start = 1, #found, 1000 do
    local names, stop = {}, math.min(start + 998, #found)
    for at = start, stop, 2 do
      names[#names + 1] = found[at]
      names[#names + 1] = '=' .. found[at]
    end
    local stored = call('HMGET', claims, unpack(names))
    for at = start, stop, 2 do
      local place = #list
      list[place + 1], list[place + 2] = found[at], tonumber(found[at + 1])
      list[place + 3] = stored[at - start + 1] or ''
      list[place + 4] = stored[at - start + 2] or ''
    end
  end
  return list
end

-- Append to `list` those of the contenders at these ranks that `is_wanted`, given token, marker and value.
local function select_into(list, queue, first, last, is_wanted)
  local found = part(queue, first, last)
  for at = 2, #found, 4 do
    if is_wanted(found[at + 1], string.match(found[at + 2], '^%S+'), found[at + 3]) then
      for field = at, at + 3 do list[#list + 1] = found[field] end
    end
  end
end

local function set_of(words)
  local set = {}
  for word in string.gmatch(words, '%S+') do set[word] = true end
  return set
end

-- Without the inboxes of clients that have no session.
local function living(watchers)
  local clients, kept = {}, {}
  for _, session in ipairs(call('ZRANGE', ROOT .. 'sessions', '0', '-1')) do
    clients[inbox_of(session)] = true
  end
  for inbox in string.gmatch(watchers, '%S+') do
    if clients[inbox] then kept[#kept + 1] = inbox end
  end
  return table.concat(kept, ' ')
end

-- Have the departure and the values of a contender published to an inbox.
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

-- The answer to a try that would have to wait, or nil. Its entries begin at those places in ARGV.
local function refusal(places)
  -- Whether a record of a convertible contender, as in coordlock.model.claim, lets a newcomer in
  -- that may stand with the modes of which `compatible` has the markers.
  local MARKERS = {NL = 'nl', CR = 'cr', CW = 'cw', PR = 'rlock', PW = 'pw', EX = 'lock'}
  local function lets_in(record, compatible)
    local is_read, fields = pcall(cjson.decode, (string.gsub(record, '^%d+ ', '', 1)))
    if not is_read or type(fields) ~= 'table' or fields.format ~= 1 then
      return compatible[MARKERS.EX] ~= nil
    end
    local target = fields.target
    if type(target) == 'string' and not compatible[MARKERS[target] or 'lock'] then return false end
    return compatible[MARKERS[fields.mode] or 'lock'] ~= nil
  end

  -- What is in the way of a newcomer, and how many contenders stand before that; nil for nothing.
  local function in_the_way(place)
    local queue, own_marker, markers = ARGV[place], ARGV[place + 2], ARGV[place + 6]
    local permits = tonumber(string.match(own_marker, '^permit(%d+)$'))
    local count = call('ZCARD', ROOT .. 'queue:' .. queue)
    if count == 0 then return nil end
    if permits then
      -- A queue in use is of one kind, so its last contender shows which.
      local last = part(queue, count - 1, count - 1)
      if string.match(last[4], '^%S+') ~= own_marker then return last end
      if count < permits then return nil end
      return part(queue, count - permits, count - 1)
    end
    local compatible = set_of(markers)
    local function is_blocking(_, marker, value)
      if marker == 'convertible' then
        return own_marker == 'convertible' or not lets_in(value, compatible)
      end
      return not compatible[marker]
    end
    for stop = count - 1, 0, -64 do
      local blocking = {0}
      select_into(blocking, queue, math.max(0, stop - 63), stop, is_blocking)
      if #blocking > 1 then return blocking end
    end
  end

  local found, is_blocked = {}, false
  for number, place in ipairs(places) do
    local blocking = in_the_way(place)
    is_blocked = is_blocked or blocking ~= nil
    found[number] = blocking or {0}
    found[#places + number] = -1
  end
  if is_blocked then return finish('blocked', last, unpack(found)) end
end
