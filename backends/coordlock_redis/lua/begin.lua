-- What every script begins with: the server's clock, the state of the root, and functions.
--
-- KEYS[1] is the root's state. All other keys of the root have the same hash tag, and their names
-- begin as this one does:
--
--   state              hash: run, born, last, ttl, quiet, evicted
--   sessions           sorted set: session, by its expiry in microseconds of the server's clock
--   held:<session>     hash: contender's id -> queue
--   queues             set: the queues that have contenders
--   queue:<queue>      sorted set: contender's id, by its token
--   claims:<queue>     hash: id -> "marker session owner"; "=id" -> "version value" once there is one
--   watchers:<queue>   hash: id -> the inboxes that its departure is told to; with "+" its values, too
--   values:<folder>    hash: key -> value
--   versions:<folder>  hash: key -> version
--
-- Channels: inbox:<client>, changes:<queue>, key:<key>, folder:<folder>.
--
-- Each script reads all it needs before it writes: what makes it fail, such as a key of another
-- type, then leaves nothing half done.

-- ARGV[1] names the operation; ARGV[2] has, with spaces between them:
--   RUN      which server this is
--   INBOX    the client
--   CLUSTER  "1" in a cluster
--   UNTIL    where the root has no state: grant nothing before this time
--   KNOWN    where a client has seen a state that is gone: for so long
--   DELAY    after another server: for so long; -1 for the longest ttl
local RUN, INBOX, CLUSTER, UNTIL, KNOWN, DELAY =
  string.match(ARGV[2], '(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)')
UNTIL, KNOWN, DELAY = tonumber(UNTIL), tonumber(KNOWN), tonumber(DELAY)
local FIRST = 3 -- the first argument of the operation itself
local ROOT = string.sub(KEYS[1], 1, -6)
local call = redis.call

-- Numbers beyond 1e14 would be written as 1.7e+15.
local function int(number) return string.format('%.0f', number) end

-- While a slot moves, a node has some of its keys. It refuses to look for those that it lacks, so
-- that the script ends here, before it takes a missing key for an empty one.
if CLUSTER == '1' then call('EXISTS', ROOT .. 'nothing') end

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local state = call('HMGET', KEYS[1], 'run', 'born', 'last', 'ttl', 'quiet')
local born, last = tonumber(state[2] or 0), tonumber(state[3] or 0)
local longest, quiet = tonumber(state[4] or 0), tonumber(state[5] or 0)
local has_changed = false
local compat = {} -- what `compat.lua` adds, for clients that ask for it

-- The revision of what this script changes, and the token of what it adds. It is greater than all
-- before, also those that were lost with the data, unless the clock has gone back.
local function change()
  if not has_changed then
    last, has_changed = math.max(last + 1, now), true
  end
  return last
end

local function finish(...)
  if has_changed then call('HSET', KEYS[1], 'last', int(last)) end
  return {...}
end

local function tell(channel, news) call('PUBLISH', ROOT .. channel, news) end

local function session_of(claim) return string.match(claim, '^%S+ (%S*)') end
local function inbox_of(session) return string.match(session, '^[^-]*') end

-- Remove a contender and tell those who watch it. Its own client is told, too, unless it is the
-- one that calls, which knows.
local function leave(queue, id, is_wanted)
  local key, claims = ROOT .. 'queue:' .. queue, ROOT .. 'claims:' .. queue
  local watching = ROOT .. 'watchers:' .. queue
  local before, token, is_last = 0, nil, false
  local first = call('ZRANGE', key, 0, 1, 'WITHSCORES')
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
  local told = {}
  if claim then
    local session = session_of(claim)
    call('HDEL', ROOT .. 'held:' .. session, id)
    local owner = inbox_of(session)
    if owner ~= INBOX or is_wanted then told[owner] = true end
  end
  for inbox in string.gmatch(watchers or '', '[^ +]+') do told[inbox] = true end
  change()
  local news = 'left ' .. id .. ' ' .. int(token) .. ' ' .. before
  for inbox in pairs(told) do tell('inbox:' .. inbox, news) end
  if compat.left then compat.left(queue) end
  tell('changes:' .. queue, int(last))
  return true
end

local function end_session(session)
  local held = call('HGETALL', ROOT .. 'held:' .. session)
  call('ZREM', ROOT .. 'sessions', session)
  -- Before its contenders leave: else its client would take them for evicted.
  tell('inbox:' .. inbox_of(session), 'over ' .. session .. ' ' .. int(born))
  for at = 1, #held, 2 do leave(held[at + 1], held[at], true) end
  call('DEL', ROOT .. 'held:' .. session)
  change()
end

-- Nothing that was granted before counts any more, and nothing is granted before `time`.
local function begin_anew(time)
  local sessions = call('ZRANGE', ROOT .. 'sessions', 0, -1)
  quiet, born = time, now
  change()
  call('HSET', KEYS[1], 'run', RUN, 'born', int(born), 'quiet', int(quiet), 'last', int(last))
  for _, session in ipairs(sessions) do end_session(session) end
  for _, queue in ipairs(call('SMEMBERS', ROOT .. 'queues')) do
    call('DEL', ROOT .. 'queue:' .. queue, ROOT .. 'claims:' .. queue, ROOT .. 'watchers:' .. queue)
    tell('changes:' .. queue, int(last))
  end
  call('DEL', ROOT .. 'queues')
end

-- The expiry of a live session, or nil.
local function expiry_of(session)
  if session == compat.session then return now + compat.pause end
  local expiry = tonumber(call('ZSCORE', ROOT .. 'sessions', session) or 0)
  if expiry > now then return expiry end
end

local function is_there(queue, id, token)
  return tonumber(call('ZSCORE', ROOT .. 'queue:' .. queue, id) or -1) == tonumber(token)
end

-- Append to `list`, for each contender, its id, token, claim and value.
local function describe(list, queue, ids, tokens)
  for start = 1, #ids, 500 do
    local names, stop = {}, math.min(start + 499, #ids)
    for at = start, stop do
      names[#names + 1] = ids[at]
      names[#names + 1] = '=' .. ids[at]
    end
    local found = call('HMGET', ROOT .. 'claims:' .. queue, unpack(names))
    for at = start, stop do
      local place = 2 * (at - start)
      list[#list + 1] = ids[at]
      list[#list + 1] = tonumber(tokens[at])
      list[#list + 1] = found[place + 1] or ''
      list[#list + 1] = found[place + 2] or ''
    end
  end
  return list
end

-- The contenders at the ranks from `first` to `last`, behind how many others they stand.
local function part(queue, first, last)
  local found = call('ZRANGE', ROOT .. 'queue:' .. queue, first, last, 'WITHSCORES')
  local ids, tokens = {}, {}
  for at = 1, #found, 2 do
    ids[#ids + 1] = found[at]
    tokens[#tokens + 1] = found[at + 1]
  end
  return describe({first}, queue, ids, tokens)
end

-- Whether a record of a convertible contender, as in coordlock.model.claim, lets a newcomer in that
-- may stand with the modes of which `compatible` has the markers.
local MARKERS = {NL = 'nl', CR = 'cr', CW = 'cw', PR = 'rlock', PW = 'pw', EX = 'lock'}
local function lets_in(record, compatible, is_update)
  local is_read, fields = pcall(cjson.decode, (string.gsub(record, '^%d+ ', '', 1)))
  if not is_read or type(fields) ~= 'table' or fields.format ~= 1 then
    return compatible[MARKERS.EX] ~= nil
  end
  if is_update and fields.update == true then return false end
  local target = fields.target
  if type(target) == 'string' and not compatible[MARKERS[target] or 'lock'] then return false end
  return compatible[MARKERS[fields.mode] or 'lock'] ~= nil
end
