/** Two kinds of chart as inline SVG, coloured by the page's own variables. */

export interface BarChart {
  readonly title: string
  readonly unit: string
  readonly bars: readonly { readonly label: string; readonly value: number; readonly ours: boolean }[]
}

export interface LineChart {
  readonly title: string
  readonly x: string
  readonly y: string
  readonly lines: readonly { readonly label: string; readonly points: readonly (readonly [number, number])[] }[]
}

export type Chart = BarChart | LineChart

const escaped = (text: string) => text.replace(/[&<>"]/g, char => `&#${char.charCodeAt(0)};`)
const short = (value: number) =>
  value >= 1000 ? `${Math.round(value / 100) / 10}k` : value >= 10 ? String(Math.round(value)) : value.toPrecision(2)

const COLOURS = ['#0b7285', '#e8590c', '#5f3dc4', '#2b8a3e', '#c2255c', '#1971c2', '#868e96', '#f08c00']

export function barChart({ title, unit, bars }: BarChart): string {
  const top = Math.max(...bars.map(bar => bar.value), Number.MIN_VALUE)
  const rows = bars.map(({ label, value, ours }, index) => {
    const y = 34 + index * 26
    const width = Math.max(1, (value / top) * 420)
    return (
      `<text x="240" y="${y + 13}" text-anchor="end">${escaped(label)}</text>` +
      `<rect class="${ours ? 'ours' : 'other'}" x="250" y="${y}" width="${width}" height="18" rx="2"/>` +
      `<text class="dim" x="${256 + width}" y="${y + 13}">${short(value)}</text>`
    )
  })
  return (
    `<svg role="img" viewBox="0 0 740 ${40 + bars.length * 26}" width="740"><text x="0" y="16">${escaped(title)}` +
    `<tspan class="dim"> (${escaped(unit)})</tspan></text>${rows.join('')}</svg>`
  )
}

/** Both axes begin at zero. */
export function lineChart({ title, x, y, lines }: LineChart): string {
  const points = lines.flatMap(line => line.points)
  const maxX = Math.max(...points.map(point => point[0]), Number.MIN_VALUE)
  const maxY = Math.max(...points.map(point => point[1]), Number.MIN_VALUE)
  const at = ([px, py]: readonly [number, number]) =>
    `${(60 + (px / maxX) * 460).toFixed(1)},${(250 - (py / maxY) * 210).toFixed(1)}`
  const grid = [0, 0.25, 0.5, 0.75, 1].map(
    share =>
      `<line class="grid" x1="60" x2="520" y1="${250 - share * 210}" y2="${250 - share * 210}"/>` +
      `<text class="dim" x="54" y="${254 - share * 210}" text-anchor="end">${short(share * maxY)}</text>` +
      `<text class="dim" x="${60 + share * 460}" y="268" text-anchor="middle">${short(share * maxX)}</text>`,
  )
  const drawn = lines.map(({ label, points }, index) => {
    const colour = COLOURS[index % COLOURS.length]!
    const dots = points.map(point => {
      const [cx, cy] = at(point).split(',')
      return `<circle cx="${cx}" cy="${cy}" r="2.5" fill="${colour}"/>`
    })
    return (
      `<polyline fill="none" stroke="${colour}" stroke-width="2" points="${points.map(at).join(' ')}"/>${dots.join('')}` +
      `<rect x="535" y="${40 + index * 20}" width="10" height="10" fill="${colour}"/>` +
      `<text x="550" y="${49 + index * 20}">${escaped(label)}</text>`
    )
  })
  return (
    `<svg role="img" viewBox="0 0 800 300" width="800"><text x="0" y="16">${escaped(title)}` +
    `<tspan class="dim"> (${escaped(y)})</tspan></text>${grid.join('')}${drawn.join('')}` +
    `<text class="dim" x="290" y="290" text-anchor="middle">${escaped(x)}</text></svg>`
  )
}
