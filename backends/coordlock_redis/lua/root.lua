-- What every script begins with: the server's clock, the state of the root, and functions.
--
-- KEYS[1] is the root's state. All other keys of the root have the same hash tag, and their names
-- begin as this one does:
--
--   state              hash: run, promoted, born, last, restart_delay, since, quiet
--   sessions           sorted set: session, by its expiry in microseconds of the server's clock
--   held:<session>     hash: contender's id -> queue
--   queues             set: the queues that have contenders
--   queue:<queue>      sorted set: contender's id, by its token
--   claims:<queue>     hash: id -> "marker session owner"; "=id" -> "version value" once there is one
--   watchers:<queue>   hash: id -> the inboxes that its departure is published to, as its values are
--   values:<folder>    hash: key -> value
--   versions:<folder>  sorted set: key -> version
--
-- Channels: inbox:<client>, changes:<queue>, key:<key>, folder:<folder>, anew.
--
-- Each script reads all it needs before it writes: what makes it fail, such as a key of another
-- type, then leaves nothing half done.

-- ARGV[1] names the operation: one of the blocks behind the functions. The next are which server this is, the client, "1" in a cluster, and
-- what `known_to_client` reads.
local RUN, INBOX, CLUSTER = ARGV[2], ARGV[3], ARGV[4]
local FIRST = 6 -- the first argument of the operation itself
local ROOT = string.sub(KEYS[1], 1, -6)
local call = redis.call

-- What the client knows: when the server started or was promoted; the `born` of the state that it has
-- seen last, or 0; its own restart_delay; and the largest one that it has seen.
local function known_to_client()
  local started, seen, own, largest = string.match(ARGV[5], '(%S+) (%S+) (%S+) (%S+)')
  return tonumber(started), tonumber(seen), tonumber(own), tonumber(largest)
end

-- While a slot moves, a node has some of its keys. It refuses to look for those that it lacks, so
-- that the script ends here, before it takes a missing key for an empty one.
if CLUSTER == '1' then call('EXISTS', ROOT .. 'nothing') end

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local state = call('HMGET', KEYS[1], 'run', 'born', 'last', 'restart_delay', 'quiet', 'promoted')
local born, last = tonumber(state[2] or 0), tonumber(state[3] or 0)
local delay, quiet = tonumber(state[4] or 0), tonumber(state[5] or 0)
local promoted, has_changed = state[6], false

-- Nothing is granted before `quiet`, which is never further off than the largest restart_delay, unless
-- the clock was set back: then that counts from now on.
if state[4] and quiet > now + delay then
  quiet = now + delay
  call('HSET', KEYS[1], 'quiet', quiet)
end

-- A number in a text. Lua would write those beyond 1e14 as 1.7e+15.
local function int(number) return string.format('%.0f', number) end

-- The revision of what this script changes, and the token of what it adds. It is greater than all
-- before, also those that were lost with the data, unless the clock has gone back.
local function change()
  if not has_changed then
    last, has_changed = math.max(last + 1, now), true
  end
  return last
end

local function finish(...)
  if has_changed then call('HSET', KEYS[1], 'last', last) end
  return {...}
end

local function publish(channel, message) call('PUBLISH', ROOT .. channel, message) end

local function session_of(claim) return string.match(claim, '^%S+ (%S*)') end
local function inbox_of(session) return string.match(session, '^[^-]*') end

-- The expiry of a live session, or nil.
local function expiry_of(session)
  local expiry = tonumber(call('ZSCORE', ROOT .. 'sessions', session) or 0)
  if expiry > now then return expiry end
end

local function is_there(queue, id, token)
  return tonumber(call('ZSCORE', ROOT .. 'queue:' .. queue, id) or -1) == tonumber(token)
end
