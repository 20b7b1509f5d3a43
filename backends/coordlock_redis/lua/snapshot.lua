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
