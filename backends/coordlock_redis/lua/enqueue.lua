-- Add contenders, one for each entry, or find them. session, "1" for unless blocked, and for each
-- entry: queue, id, marker, owner, value, window, "1" to watch the nearest before it,
-- the markers that it may stand with, its permits (0 for a mode), "1" for an update
-- -> last, and for each entry: those before it, preceded by how many are omitted, and its token;
-- and the microseconds after which the session of the nearest before it expires
local session, is_try = ARGV[FIRST], ARGV[FIRST + 1] == '1'
end_what_a_promotion_has_lost()
if not expiry_of(session) then return finish('lost', born) end
if quiet > born and now + quiet - born < born then
  -- The clock has been set back by more than nothing is granted for: that counts from now on.
  quiet = now + quiet - born
  call('HSET', KEYS[1], 'quiet', quiet)
end
if now < quiet then return finish('quiet', quiet - now) end

-- Where the entries begin in ARGV, and by these places how many contenders stand before each.
local places, ranks = {}, {}
local mine, others = 0, {}
for at = FIRST + 2, #ARGV, 10 do
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

local token
if is_new then
  for _, at in ipairs(others) do leave(ARGV[at], ARGV[at + 1]) end
  for _, at in ipairs(places) do ranks[at] = rank_in(ARGV[at], session) end
  token = change()
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
  local rank, listed = ranks[at], {0}
  if not token then rank = call('ZRANK', ROOT .. 'queue:' .. queue, id) end
  if rank > 0 then listed = part(queue, math.max(0, rank - ARGV[at + 5]), rank - 1) end
  listed[#listed + 1] = token or tonumber(call('ZSCORE', ROOT .. 'queue:' .. queue, id))
  found[number], found[#places + number] = listed, -1
  if rank > 0 and ARGV[at + 6] == '1' then
    local before = session_of(listed[#listed - 2])
    local expiry = before and before ~= session and expiry_of(before)
    if expiry then
      watch(queue, listed[#listed - 4], INBOX)
      found[#places + number] = expiry - now
    end
  end
end
return finish('ok', last, unpack(found))
