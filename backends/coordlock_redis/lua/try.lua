-- The answer to a try that would have to wait, or nil. Its entries begin at those places in ARGV.
local function refusal(places)
  -- Whether a record of a convertible contender, as in coordlock.model.claim, lets a newcomer in
  -- that may stand with the modes of which `compatible` has the markers.
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

  -- What is in the way of a newcomer, and how many contenders stand before that; nil for nothing.
  local function in_the_way(place)
    local queue, own_marker, markers = ARGV[place], ARGV[place + 2], ARGV[place + 7]
    local permits, is_update = tonumber(ARGV[place + 8]), ARGV[place + 9] == '1'
    local count = call('ZCARD', ROOT .. 'queue:' .. queue)
    if count == 0 then return nil end
    if permits > 0 then
      -- A queue in use is of one kind, so its last contender shows which.
      local last = part(queue, count - 1, count - 1)
      if string.match(last[4], '^%S+') ~= own_marker then return last end
      if count < permits then return nil end
      return part(queue, count - permits, count - 1)
    end
    local compatible = set_of(markers)
    local function is_blocking(_, marker, value)
      if marker == 'convertible' then return not lets_in(value, compatible, is_update) end
      return not compatible[marker]
    end
    for stop = count - 1, 0, -64 do
      local blocking = {0}
      select_into(blocking, queue, math.max(0, stop - 63), stop, is_blocking)
      if #blocking > 1 then return blocking end
    end
  end

  -- Whether one of `blocking` has left here, because its session has expired: see `expire.lua`.
  local function has_left(queue, blocking)
    local any = false
    for at = 2, #blocking, 4 do
      if not expiry_of(session_of(blocking[at + 2]) or '') then
        any = leave(queue, blocking[at]) or any
      end
    end
    return any
  end

  local found, is_blocked = {}, false
  for number, place in ipairs(places) do
    local queue, blocking = ARGV[place], in_the_way(place)
    while blocking and has_left(queue, blocking) do
      blocking = in_the_way(place)
    end
    is_blocked = is_blocked or blocking ~= nil
    found[number] = blocking or {0}
    found[#places + number] = -1
  end
  if is_blocked then return finish('blocked', last, unpack(found)) end
end
