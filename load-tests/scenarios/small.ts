import { interleaved, type Measured } from '../lib/measure.ts'
import { cell, ratio, type Section, wrongCell } from '../lib/report.ts'
import { SMALL_BODY } from '../lib/upstream.ts'
import type { Bench, Scenario } from './scenario.ts'

const CONNECTIONS = { smoke: [8], quick: [1, 64], full: [1, 8, 64, 512] } as const

/** 1 KB GETs, closed loop. The first road, one nginx hop, is the unit of the ratios. */
export const small: Scenario = {
  name: 'small',
  title: '1 KB GET, closed loop',
  async run(bench) {
    const sections: Section[] = []
    for (const connections of CONNECTIONS[bench.mode]) sections.push(await atConnections(bench, connections))
    return sections
  },
}

async function atConnections(bench: Bench, connections: number): Promise<Section> {
  const measured = await interleaved(
    bench.roads,
    bench.rounds,
    async (road, warmUp) => {
      const result = await bench.generator({
        url: `${road.url}/small`,
        connections,
        durationMs: warmUp ? Math.min(1000, bench.roundMs) : bench.roundMs,
        headers: road.headers,
        expectBody: SMALL_BODY,
      })
      const { perSecond, p50, p99, generatorCpu, wrong, requests } = result
      return { figures: { perSecond, p50, p99, generatorCpu }, wrong, units: requests }
    },
    text => bench.progress(`small, ${connections} connections: ${text}`),
  )
  const unit = measured.find(each => each.road === 'nginx hop') ?? measured[0]!
  const over = (each: Measured, name: string) => ratio(each.figures[name]!.median / unit.figures[name]!.median)
  const busy = measured.some(each => each.figures.generatorCpu!.median >= 0.9)
  return {
    name: `small-${connections}`,
    title: `1 KB GET, ${connections} connections`,
    note:
      'Closed loop: a new request leaves when the last answer has come, so latency under load is not corrected for ' +
      `coordinated omission.${busy ? ' The generator used over 90 % of a core in places and may be the limit.' : ''}`,
    columns: ['road', 'req/s', 'of nginx', 'CPU us', 'x nginx', 'p50 ms', 'x', 'p99 ms', 'x', 'wrong'],
    rows: measured.map(each => [
      { text: each.road },
      cell(each.figures.perSecond!),
      over(each, 'perSecond'),
      cell(each.figures.cpu!),
      over(each, 'cpu'),
      cell(each.figures.p50!),
      over(each, 'p50'),
      cell(each.figures.p99!),
      over(each, 'p99'),
      wrongCell(each.wrong),
    ]),
    charts: [
      {
        title: `CPU per request, ${connections} connections`,
        unit: 'us, less is better',
        bars: measured.map(({ road, figures }) => ({
          label: road,
          value: figures.cpu!.median,
          ours: /tunnel|ingress/.test(road),
        })),
      },
    ],
    wrong: measured.reduce((sum, each) => sum + each.wrong, 0),
    data: measured,
  }
}
