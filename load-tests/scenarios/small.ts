import type { Section } from '../lib/section.ts'
import { withPath } from '../roads/road.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import { type Bench, bars, lengthMs, limitNote, overRoads, type Scenario, UNIT } from './scenario.ts'

const CONNECTIONS = { smoke: [8], quick: [1, 64], full: [1, 8, 64, 512] } as const

/** 1 KB GETs, closed loop, on every road. */
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
  const roads = await bench.roads.all()
  const measured = await overRoads(bench, `small, ${connections} connections`, roads, async (road, isWarmUp) => {
    const { perSecond, p50, p99, generatorCpu, wrong, requests } = await bench.generators.run({
      ...withPath(road, PATHS.small),
      connections,
      durationMs: lengthMs(bench, isWarmUp),
      expectBody: SMALL_BODY,
    })
    return { figures: { perSecond, p50, p99, generatorCpu }, wrong, units: requests }
  })
  return {
    name: `small-${connections}`,
    title: `1 KB GET, ${connections} ${connections === 1 ? 'connection' : 'connections'}`,
    note:
      'Closed loop: a new request leaves when the last answer has come, so latency is not corrected for coordinated ' +
      `omission. Over HTTP/2 a connection is a stream, at most 50 in a session.${limitNote(measured)}`,
    measured,
    columns: [
      { title: 'req/s', figure: 'perSecond' },
      { title: 'of nginx', figure: 'perSecond', over: UNIT },
      { title: 'CPU us', figure: 'cpu' },
      { title: 'x nginx', figure: 'cpu', over: UNIT },
      { title: 'p50 ms', figure: 'p50' },
      { title: 'x nginx', figure: 'p50', over: UNIT },
      { title: 'p99 ms', figure: 'p99' },
      { title: 'x nginx', figure: 'p99', over: UNIT },
      { title: 'generator', figure: 'generatorCpu' },
    ],
    charts:
      connections === 1
        ? [{ title: 'Latency at 1 connection, p50', unit: 'ms, less is better', bars: bars(measured, 'p50') }]
        : [
            {
              title: `CPU per request, ${connections} connections`,
              unit: 'us, less is better',
              bars: bars(measured, 'cpu'),
            },
            {
              title: `Requests per second, ${connections} connections`,
              unit: 'more is better',
              bars: bars(measured, 'perSecond'),
            },
          ],
  }
}
