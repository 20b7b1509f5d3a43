-- Remove contenders. For each: queue, id, its token or "" for any, "1" to be told of it -> how many
local count = 0
for at = FIRST, #ARGV, 4 do
  local queue, id, token = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if compat.evict and compat.evict(queue, id) then
    count = count + 1
  elseif token == '' or is_there(queue, id, token) then
    if leave(queue, id, ARGV[at + 3] == '1') then count = count + 1 end
  end
end
return finish('ok', count)
