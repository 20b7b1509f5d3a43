-- Add contenders, one for each entry, or find them. session, "1" for unless blocked, and for each
-- entry: queue, id, marker, owner, value, window, "1" to watch the nearest before it,
-- the markers that it may stand with, its permits (0 for a mode), "1" for an update
-- -> last, and for each entry: those before it, preceded by how many are omitted, and its token;
-- and the microseconds after which the session of the nearest before it expires
local session, is_try = ARGV[FIRST], ARGV[FIRST + 1] == '1'
if not expiry_of(session) then return finish('lost', born) end
if quiet > born and now + quiet - born < born then
  -- The clock has been set back by more than nothing is granted for: that counts from now on.
  quiet = now + quiet - born
  call('HSET', KEYS[1], 'quiet', int(quiet))
end
if now < quiet then return finish('quiet', quiet - now) end

local entries = {}
for at = FIRST + 2, #ARGV, 10 do
  entries[#entries + 1] = {
    queue = ARGV[at], id = ARGV[at + 1], marker = ARGV[at + 2], owner = ARGV[at + 3],
    value = ARGV[at + 4], window = tonumber(ARGV[at + 5]), watches = ARGV[at + 6] == '1',
    compatible = ARGV[at + 7], permits = tonumber(ARGV[at + 8]), is_update = ARGV[at + 9] == '1',
  }
end

local mine, others = 0, {}
for _, entry in ipairs(entries) do
  local claim = call('HGET', ROOT .. 'claims:' .. entry.queue, entry.id)
  -- Also fails where another program uses the key, before anything is written.
  entry.rank = call('ZCARD', ROOT .. 'queue:' .. entry.queue)
  if claim then
    if session_of(claim) == session then mine = mine + 1 end
    others[#others + 1] = entry
  end
  if compat.look then compat.look(entry.queue) end
end

-- What is in the way of a newcomer, and how many contenders stand before that; nil for nothing.
local function in_the_way(entry)
  local key = ROOT .. 'queue:' .. entry.queue
  local count = call('ZCARD', key)
  if compat.unlisted and not string.find(' ' .. entry.compatible .. ' ', ' lock ', 1, true) then
    local foreign = compat.unlisted(entry.queue)
    if foreign then return foreign end
  end
  if count == 0 then return nil end
  if entry.permits > 0 then
    -- A queue in use is of one kind, so its last contender tells of which.
    local last = part(entry.queue, count - 1, count - 1)
    if string.match(last[4], '^%S+') ~= entry.marker then return last end
    if count < entry.permits then return nil end
    return part(entry.queue, count - entry.permits, count - 1)
  end
  local compatible = {}
  for marker in string.gmatch(entry.compatible, '%S+') do compatible[marker] = true end
  for stop = count - 1, 0, -64 do
    local found = part(entry.queue, math.max(0, stop - 63), stop)
    local blocking = {0}
    for at = 2, #found, 4 do
      local marker = string.match(found[at + 2], '^%S+')
      local lets = compatible[marker]
      if marker == 'convertible' then
        lets = lets_in(found[at + 3], compatible, entry.is_update)
      end
      if not lets then
        for field = at, at + 3 do blocking[#blocking + 1] = found[field] end
      end
    end
    if #blocking > 1 then return blocking end
  end
end

if is_try and mine < #entries then
  local found, is_blocked = {}, false
  for number, entry in ipairs(entries) do
    local blocking = in_the_way(entry)
    is_blocked = is_blocked or blocking ~= nil
    found[number] = blocking or {0}
    found[#entries + number] = -1
  end
  if is_blocked then return finish('blocked', last, unpack(found)) end
end

if mine < #entries then
  for _, entry in ipairs(others) do leave(entry.queue, entry.id, true) end
  for _, entry in ipairs(entries) do
    if compat.enter then compat.enter(entry.queue, session) end
    if compat.enter or #others > 0 then
      entry.rank = call('ZCARD', ROOT .. 'queue:' .. entry.queue)
    end
  end
  local token = change()
  for _, entry in ipairs(entries) do
    local claims = ROOT .. 'claims:' .. entry.queue
    call('ZADD', ROOT .. 'queue:' .. entry.queue, int(token), entry.id)
    call('HSET', claims, entry.id, entry.marker .. ' ' .. session .. ' ' .. entry.owner)
    if entry.value ~= '' then call('HSET', claims, '=' .. entry.id, '1 ' .. entry.value) end
    call('HSET', ROOT .. 'held:' .. session, entry.id, entry.queue)
    if entry.rank == 0 then call('SADD', ROOT .. 'queues', entry.queue) end
    entry.token = token
    tell('changes:' .. entry.queue, int(token))
  end
end

local found = {}
for number, entry in ipairs(entries) do
  local queue = ROOT .. 'queue:' .. entry.queue
  local rank, listed = entry.token and entry.rank or call('ZRANK', queue, entry.id), {0}
  if rank > 0 then listed = part(entry.queue, math.max(0, rank - entry.window), rank - 1) end
  listed[#listed + 1] = entry.token or tonumber(call('ZSCORE', queue, entry.id))
  found[number], found[#entries + number] = listed, -1
  if entry.watches and rank > 0 then
    local before = session_of(listed[#listed - 2])
    local expiry = before and before ~= session and expiry_of(before)
    if expiry then
      local key, id = ROOT .. 'watchers:' .. entry.queue, listed[#listed - 4]
      local watchers = call('HGET', key, id)
      if not watchers or not string.find(' ' .. watchers .. ' ', ' ' .. INBOX .. ' ', 1, true) then
        call('HSET', key, id, watchers and watchers .. ' ' .. INBOX or INBOX)
      end
      found[#entries + number] = expiry - now
    end
  end
end
return finish('ok', last, unpack(found))
