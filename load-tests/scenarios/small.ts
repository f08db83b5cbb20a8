import type { Section } from '../lib/section.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { PATHS, SMALL_BODY } from '../upstream/service.ts'
import { type Bench, bars, isOnV8, limitNote, measureSetups, type Scenario, UNIT } from './scenario.ts'

/** A point between two others. It leaves out the peers, to save time. */
const FEW = 8
/** The first count warms the setups up for all counts. */
const CONNECTIONS = { smoke: [FEW], quick: [64, 1], full: [64, 1, FEW, 512] } as const
/** V8 compiles during the first 100,000 requests, and a little during the next 100,000. */
const WARM_UP_MS = { smoke: 0, quick: 4_000, full: 10_000 } as const
/** A setup has been idle for up to a minute before its round. One on V8 needs a second to be as fast as before. */
const LEAD_IN_MS = { smoke: 0, quick: 500, full: 1_000 } as const
const COMPILED_LEAD_IN_MS = 300

/** 1 KB GETs, closed loop, on every setup. */
export const small: Scenario = {
  name: 'small',
  title: '1 KB GET, closed loop',
  async run(bench) {
    const sections: Section[] = []
    for (const [index, connections] of CONNECTIONS[bench.mode].entries()) {
      sections.push(await atConnections(bench, connections, index === 0))
    }
    return sections
  },
}

async function atConnections(bench: Bench, connections: number, warmUp: boolean): Promise<Section> {
  const bare = bench.mode === 'full' ? await bench.setups.pick('bare-mux') : []
  const all = await (connections === FEW ? bench.setups.ours() : bench.setups.all())
  const setups = [...all, ...bare]
  const load = (setup: Setup, durationMs: number) =>
    bench.generators.run({ ...withPath(setup, PATHS.small), connections, durationMs, expectBody: SMALL_BODY })
  const leadIn = (setup: Setup) => load(setup, isOnV8(setup.key) ? LEAD_IN_MS[bench.mode] : COMPILED_LEAD_IN_MS)
  const once = async (setup: Setup, isWarmUp: boolean) => {
    const result = await load(setup, isWarmUp ? WARM_UP_MS[bench.mode] : bench.roundMs)
    const { perSecond, p50, p99, generatorCpu, wrong, requests } = result
    return { figures: { perSecond, p50, p99, generatorCpu }, wrong, units: requests }
  }
  const measured = await measureSetups(bench, `small, ${connections} connections`, setups, once, {
    leadIn,
    warmUp: warmUp && isOnV8,
  })
  return {
    name: `small-${connections}`,
    title: `1 KB GET, ${connections} ${connections === 1 ? 'connection' : 'connections'}`,
    note:
      'Closed loop: a connection sends its next request when the answer has arrived, so latency is not corrected for ' +
      'coordinated omission. A short load before each round is not counted, because setups idle while others are ' +
      `measured. Over HTTP/2, a connection is a stream, with at most 50 per session.${limitNote(measured)}`,
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
