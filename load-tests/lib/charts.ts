/** Charts as inline SVG, in the colours of the page's variables. */

export interface BarChart {
  readonly title: string
  readonly unit: string
  readonly bars: readonly { readonly label: string; readonly value: number; readonly isOurs: boolean }[]
}

export interface LineChart {
  readonly title: string
  readonly x: string
  readonly y: string
  /** Whether the y axis is logarithmic. Otherwise it begins at zero, like x. */
  readonly isLog?: boolean
  readonly lines: readonly { readonly label: string; readonly points: readonly (readonly [number, number])[] }[]
}

export type Chart = BarChart | LineChart

export const drawChart = (chart: Chart): string => ('bars' in chart ? barChart(chart) : lineChart(chart))

export const escaped = (text: string): string => text.replace(/[&<>"]/g, char => `&#${char.charCodeAt(0)};`)

const short = (value: number): string => {
  if (value >= 10_000) return `${Math.round(value / 1000)}k`
  if (value >= 1000) return `${Math.round(value / 100) / 10}k`
  if (value >= 10 || value === 0) return String(Math.round(value))
  return String(Number(value.toPrecision(2)))
}

const BAR = { label: 235, width: 400, height: 18, step: 25, top: 34 } as const

function barChart({ title, unit, bars }: BarChart): string {
  const top = Math.max(...bars.map(bar => bar.value), Number.MIN_VALUE)
  const rows = bars.map(({ label, value, isOurs }, index) => {
    const y = BAR.top + index * BAR.step
    const width = Math.max(1, (value / top) * BAR.width).toFixed(1)
    return (
      `<text x="${BAR.label - 10}" y="${y + 13}" text-anchor="end">${escaped(label)}</text>` +
      `<rect class="${isOurs ? 'ours' : 'other'}" x="${BAR.label}" y="${y}" width="${width}" height="${BAR.height}" rx="2"/>` +
      `<text class="dim" x="${BAR.label + 6 + Number(width)}" y="${y + 13}">${short(value)}</text>`
    )
  })
  return frame(title, unit, 720, BAR.top + bars.length * BAR.step, rows.join(''))
}

/** Colours that can be told apart on light and dark backgrounds, even by readers who are red-green colour-blind. */
const COLOURS = ['#1c7ed6', '#f76707', '#12b886', '#be4bdb', '#e8b004', '#868e96', '#e64980', '#15aabf']

const PLOT = { left: 56, right: 500, top: 36, bottom: 250 } as const

interface Scale {
  at(value: number): number
  readonly ticks: readonly number[]
}

function lineChart({ title, x, y, isLog, lines }: LineChart): string {
  const points = lines.flatMap(line => line.points).filter(([, value]) => Number.isFinite(value))
  const xScale = linear(
    points.map(point => point[0]),
    PLOT.left,
    PLOT.right,
  )
  const yScale = (isLog ? logarithmic : linear)(
    points.map(point => point[1]),
    PLOT.bottom,
    PLOT.top,
  )
  const grid = [
    ...yScale.ticks.map(
      value =>
        `<line class="grid" x1="${PLOT.left}" x2="${PLOT.right}" y1="${yScale.at(value)}" y2="${yScale.at(value)}"/>` +
        `<text class="dim" x="${PLOT.left - 6}" y="${yScale.at(value) + 4}" text-anchor="end">${short(value)}</text>`,
    ),
    ...xScale.ticks.map(
      value =>
        `<text class="dim" x="${xScale.at(value)}" y="${PLOT.bottom + 18}" text-anchor="middle">${short(value)}</text>`,
    ),
  ]
  const drawn = lines.map(({ label, points }, index) => {
    const colour = COLOURS[index % COLOURS.length]!
    const places = points
      .filter(([, value]) => Number.isFinite(value) && !(isLog && value <= 0))
      .map(([px, py]) => `${xScale.at(px).toFixed(1)},${yScale.at(py).toFixed(1)}`)
    const legend = PLOT.top + 6 + index * 20
    const dots = places.length > 40 ? [] : places.map(place => dot(place, colour))
    return (
      `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${places.join(' ')}"/>${dots.join('')}` +
      `<rect x="${PLOT.right + 16}" y="${legend}" width="10" height="10" rx="2" fill="${colour}"/>` +
      `<text x="${PLOT.right + 32}" y="${legend + 9}">${escaped(label)}</text>`
    )
  })
  const axis = `<text class="dim" x="${(PLOT.left + PLOT.right) / 2}" y="${PLOT.bottom + 38}" text-anchor="middle">${escaped(x)}</text>`
  const height = Math.max(PLOT.bottom + 44, PLOT.top + lines.length * 20 + 10)
  return frame(title, isLog ? `${y}, logarithmic` : y, 720, height, grid.join('') + drawn.join('') + axis)
}

function dot(place: string, colour: string): string {
  const [cx, cy] = place.split(',')
  return `<circle cx="${cx}" cy="${cy}" r="2.5" fill="${colour}"/>`
}

/** From zero to a round number above the greatest value, in four or five steps. */
function linear(values: readonly number[], from: number, to: number): Scale {
  const greatest = Math.max(...values, Number.MIN_VALUE)
  const magnitude = 10 ** Math.floor(Math.log10(greatest / 4))
  const step = [1, 2, 2.5, 5, 10].map(each => each * magnitude).find(each => greatest / each <= 5)!
  const count = Math.max(1, Math.ceil(greatest / step - 1e-9))
  const ticks = Array.from({ length: count + 1 }, (_, index) => Number((index * step).toPrecision(12)))
  return { ticks, at: value => from + (value / (count * step)) * (to - from) }
}

function logarithmic(values: readonly number[], from: number, to: number): Scale {
  const positive = values.filter(value => value > 0)
  const low = Math.floor(Math.log10(Math.min(...positive, 1)))
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive, 1))))
  const ticks = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index))
  return { ticks, at: value => from + ((Math.log10(value) - low) / (high - low)) * (to - from) }
}

function frame(title: string, unit: string, width: number, height: number, content: string): string {
  return (
    `<svg role="img" aria-label="${escaped(title)}" viewBox="0 0 ${width} ${height}" width="${width}">` +
    `<text class="title" x="0" y="16">${escaped(title)}<tspan class="dim"> (${escaped(unit)})</tspan></text>${content}</svg>`
  )
}
