if ARGV[1] == 'enqueue' then
  -- Add contenders, one for each entry, or find them. session, "1" for unless blocked, and for each
  -- entry: queue, id, marker, owner, value, window, the markers that it may stand with
  -- -> last, and for each entry: those before it and itself, preceded by how many are omitted; and
  -- the microseconds after which the session of the nearest before it expires
  local session, is_try = ARGV[FIRST], ARGV[FIRST + 1] == '1'
  end_what_a_promotion_has_lost()
  if not expiry_of(session) then return finish('lost', born) end
  if now < quiet then return finish('quiet', quiet - now) end

  -- Where the entries begin in ARGV, and by these places how many contenders stand before each.
  local places, ranks = {}, {}
  local mine, others = 0, {}
  for at = FIRST + 2, #ARGV, 7 do
    local queue, id = ARGV[at], ARGV[at + 1]
    local claim = call('HGET', ROOT .. 'claims:' .. queue, id)
    rank_in(queue) -- fails where another program uses the key, before anything is written
    places[#places + 1] = at
    if claim then
      if session_of(claim) == session then mine = mine + 1 end
      others[#others + 1] = at
    end
  end

  local is_new = mine < #places
  if is_new and is_try then
    local answer = refusal(places)
    if answer then return answer end
  end

  if is_new then
    for _, at in ipairs(others) do leave(ARGV[at], ARGV[at + 1]) end
    for _, at in ipairs(places) do ranks[at] = rank_in(ARGV[at], session) end
    local token = change()
    local held = ROOT .. 'held:' .. session
    for _, at in ipairs(places) do
      local queue, id, value = ARGV[at], ARGV[at + 1], ARGV[at + 4]
      local claims = ROOT .. 'claims:' .. queue
      call('ZADD', ROOT .. 'queue:' .. queue, token, id)
      call('HSET', claims, id, ARGV[at + 2] .. ' ' .. session .. ' ' .. ARGV[at + 3])
      if value ~= '' then call('HSET', claims, '=' .. id, '1 ' .. value) end
      call('HSET', held, id, queue)
      call('SADD', ROOT .. 'queues', queue)
      publish('changes:' .. queue, int(token))
    end
  end

  local found = {}
  for number, at in ipairs(places) do
    local queue, id = ARGV[at], ARGV[at + 1]
    local rank = ranks[at] or call('ZRANK', ROOT .. 'queue:' .. queue, id)
    local listed = part(queue, math.max(0, rank - ARGV[at + 5]), rank)
    found[number], found[#places + number] = listed, -1
    if rank > 0 and ARGV[at + 2] == 'lock' then -- an exclusive lock waits for whatever is before it
      local before = session_of(listed[#listed - 5])
      local expiry = before and before ~= session and expiry_of(before)
      if expiry then
        watch(queue, listed[#listed - 7], INBOX)
        found[#places + number] = expiry - now
      end
    end
  end
  return finish('ok', last, unpack(found))
end

if ARGV[1] == 'withdraw' then
  -- Remove contenders. For each: queue, id, its token or "" for any -> how many
  local count = 0
  for at = FIRST, #ARGV, 3 do
    local queue, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    if token == '' or is_there(queue, id, token) then
      if leave(queue, id) then count = count + 1 end
    end
  end
  return finish('ok', count)
end

if ARGV[1] == 'publish' then
  -- Set a contender's value. queue, id, token, the version before, the value
  local queue, id, token = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2]
  local version, value = tonumber(ARGV[FIRST + 3]), ARGV[FIRST + 4]
  if not is_there(queue, id, token) then return finish('evicted') end
  local stored = call('HGET', ROOT .. 'claims:' .. queue, '=' .. id) or '1 '
  local space = string.find(stored, ' ', 1, true)
  local found = tonumber(string.sub(stored, 1, space - 1))
  if found == version + 1 and string.sub(stored, space + 1) == value then return finish('ok') end
  if found ~= version then return finish('version') end
  local watchers = call('HGET', ROOT .. 'watchers:' .. queue, id)
  change()
  call('HSET', ROOT .. 'claims:' .. queue, '=' .. id, (version + 1) .. ' ' .. value)
  for inbox in string.gmatch(watchers or '', '%S+') do
    publish('inbox:' .. inbox, 'value ' .. id .. ' ' .. token .. ' ' .. (version + 1))
  end
  publish('changes:' .. queue, int(last))
  return finish('ok')
end

if ARGV[1] == 'watch' then
  -- Have departures and values reported to the own inbox. The own session or ""; for each contender: queue, id, token
  -- -> last, and for each: the version of its value, or 0 if it has left; and the microseconds after which its session
  -- expires
  local session, answer = ARGV[FIRST], {}
  if session ~= '' and not expiry_of(session) then return finish('lost', born) end
  for at = FIRST + 1, #ARGV, 3 do
    local queue, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local version, left = 0, 0
    if is_there(queue, id, token) then
      local claims = ROOT .. 'claims:' .. queue
      local expiry = expiry_of(session_of(call('HGET', claims, id) or '- ') or '')
      if not expiry then
        leave(queue, id) -- its session's record is gone, as after an eviction
      else
        version = tonumber(string.match(call('HGET', claims, '=' .. id) or '1', '^%d+'))
        left = expiry - now
        watch(queue, id, INBOX)
      end
    end
    answer[#answer + 1], answer[#answer + 2] = version, left
  end
  return finish('ok', last, unpack(answer))
end

if ARGV[1] == 'snapshot' then
  -- Read a queue. queue, token (0 for all), window (-1 for those in the way), the markers of the
  -- others -> last, the contenders, preceded by how many are omitted
  local queue, token = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
  local window = tonumber(ARGV[FIRST + 2])
  local key = ROOT .. 'queue:' .. queue
  if token == 0 then return finish('ok', last, part(queue, 0, -1)) end
  local count = call('ZCOUNT', key, '-inf', token)
  if window >= 0 then
    return finish('ok', last, part(queue, math.max(0, count - 1 - window), count - 1))
  end
  local compatible, listed = set_of(ARGV[FIRST + 3]), {0}
  local function is_wanted(its, marker) return its == token or not compatible[marker] end
  for first = 0, count - 1, 64 do
    select_into(listed, queue, first, math.min(first + 63, count - 1), is_wanted)
  end
  return finish('ok', last, listed)
end

if ARGV[1] == 'queues' then
  -- The names of the queues.
  return finish('ok', call('SMEMBERS', ROOT .. 'queues'))
end
