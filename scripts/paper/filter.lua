-- A report's Markdown as LaTeX: figures with captions, tables that fit, names that break.
-- For scripts/paper.sh; figures are taken as PDF, relative links lose their targets.

local ACROSS = {upright = 108, landscape = 158} -- characters of \scriptsize that a line holds
local NORMAL = 84 -- the same of \small, upright
local BREAK = "\u{200B}" -- where a name may be broken
local ESCAPED = {
  ["\\"] = "\\textbackslash{}", ["{"] = "\\{", ["}"] = "\\}", ["$"] = "\\$", ["&"] = "\\&",
  ["#"] = "\\#", ["%"] = "\\%", ["^"] = "\\textasciicircum{}", ["~"] = "\\textasciitilde{}",
  ["_"] = "\\_", ["-"] = "-{}", ["<"] = "\\textless{}", [">"] = "\\textgreater{}",
}

-- LaTeX of a text that may break after the characters of names and paths.
local function breakable(text)
  local escaped = text:gsub(".", ESCAPED)
  return (escaped:gsub("\\_", "\\_\\allowbreak{}"):gsub("([/=,.])", "%1\\allowbreak{}"))
end

local function latex(text)
  return pandoc.RawInline("latex", text)
end

function Code(code)
  return latex("\\texttt{" .. breakable(code.text) .. "}")
end

function Str(text)
  if text.text:find("_") then
    return latex(breakable(text.text))
  end
end

function Link(link)
  if not link.target:find("^https?:") then
    return link.content
  end
end

function CodeBlock(block)
  return pandoc.RawBlock("latex", "{\\scriptsize\n\\begin{verbatim}\n" .. block.text .. "\n\\end{verbatim}\n}")
end

-- Longest text of a cell, and its longest part that cannot be broken, in characters.
local function extent(cell)
  local text = pandoc.utils.stringify(pandoc.Pandoc(cell.contents):walk({
    RawInline = function(raw)
      return pandoc.Str((raw.text:gsub("\\allowbreak{}", BREAK):gsub("\\texttt", ""):gsub("[\\{}]", "")))
    end,
  }))
  local whole, part = 0, 0
  for piece in text:gsub(BREAK, " "):gmatch("%S+") do
    part = math.max(part, utf8.len(piece) or #piece)
  end
  whole = utf8.len((text:gsub(BREAK, ""))) or #text
  return whole, part
end

-- Of every column the width of its widest cell and of its widest unbreakable part.
local function extents(tbl)
  local whole, part = {}, {}
  local function read(row)
    for i, cell in ipairs(row.cells) do
      local w, p = extent(cell)
      whole[i] = math.max(whole[i] or 1, w)
      part[i] = math.max(part[i] or 1, p)
    end
  end
  for _, row in ipairs(tbl.head.rows) do read(row) end
  for _, body in ipairs(tbl.bodies) do
    for _, row in ipairs(body.body) do read(row) end
  end
  return whole, part
end

local function sum(numbers)
  local total = 0
  for _, number in ipairs(numbers) do total = total + number end
  return total
end

-- Shares of a line of so many characters: what cannot break fits, the rest by what is wanted.
local function shares(whole, part, line)
  local free, wish, widths = math.max(0, line - sum(part)), sum(whole) - sum(part), {}
  local total = math.max(line, sum(part))
  for i = 1, #whole do
    local more = wish > 0 and free * (whole[i] - part[i]) / wish or 0
    widths[i] = (part[i] + math.min(more, whole[i] - part[i])) / total
  end
  return widths
end

function Table(tbl)
  local empty = true
  for _, row in ipairs(tbl.head.rows) do
    for _, cell in ipairs(row.cells) do
      empty = empty and pandoc.utils.stringify(cell.contents) == ""
    end
  end
  if empty then tbl.head = pandoc.TableHead() end
  local whole, part = extents(tbl)
  local gaps = 2 * #whole
  local wide = sum(part) + gaps > ACROSS.upright
  local line = (wide and ACROSS.landscape or ACROSS.upright) - gaps
  if sum(whole) > line then
    local specs = {}
    for i, width in ipairs(shares(whole, part, line)) do
      specs[i] = {tbl.colspecs[i][1], width}
    end
    tbl.colspecs = specs
  end
  local size = sum(whole) + gaps <= NORMAL and "\\small" or "\\scriptsize"
  local before, after = "\\begingroup" .. size, "\\endgroup"
  if wide then
    before, after = "\\begin{landscape}" .. before, after .. "\\end{landscape}"
  end
  return {pandoc.RawBlock("latex", before), tbl, pandoc.RawBlock("latex", after)}
end

-- An image that stands alone, followed by its caption in italics, is a figure.
local function only(block, tag)
  if block and (block.t == "Para" or block.t == "Plain") and #block.content == 1 and block.content[1].t == tag then
    return block.content[1]
  end
  if tag == "Image" and block and block.t == "Figure" then
    return only(block.content[1], "Image")
  end
end

function Blocks(blocks)
  local made, i = pandoc.Blocks({}), 1
  while i <= #blocks do
    local image, caption = only(blocks[i], "Image"), only(blocks[i + 1], "Emph")
    if image and caption then
      local file = image.src:gsub("%.svg$", ".pdf")
      local size = "width=\\linewidth,height=0.8\\textheight,keepaspectratio"
      local begin = "\\begin{figure}[htbp]\\centering\n\\includegraphics[" .. size .. "]{" .. file .. "}\n"
      local inlines = pandoc.Inlines({latex(begin .. "\\caption{")})
      inlines:extend(caption.content)
      inlines:insert(latex("}\n\\end{figure}"))
      made:insert(pandoc.Plain(inlines))
      i = i + 2
    else
      made:insert(blocks[i])
      i = i + 1
    end
  end
  return made
end
