-- Of a whole queue, also the other program that nobody waits for.
local part_of_queue = part
function part(queue, first, stop)
  local found = part_of_queue(queue, first, stop)
  local is_foreign, label = look(queue)
  if stop == -1 and is_foreign and not place(queue) then
    for _, field in ipairs({FOREIGN, last + 1, 'lock ' .. FOREIGN .. ' ' .. label, ''}) do
      found[#found + 1] = field
    end
  end
  return found
end
look(ARGV[FIRST]) -- before the contenders are counted
