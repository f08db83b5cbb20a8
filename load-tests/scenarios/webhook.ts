import { withPath } from '../setups/setup.ts'
import { HOOK_BODY, HOOK_HEADERS, PATHS } from '../upstream/service.ts'
import { bars, lengthMs, limitNote, measureSetups, type Scenario, UNIT } from './scenario.ts'

const CONNECTIONS = 16

/** Signed POSTs. The upstream verifies the signature over the raw body. */
export const webhook: Scenario = {
  name: 'webhook',
  title: '10 KB signed POST, verified by the upstream',
  async run(bench) {
    const setups = await bench.setups.some()
    const measured = await measureSetups(bench, 'webhook', setups, async (setup, isWarmUp) => {
      const place = withPath(setup, PATHS.hook)
      const { perSecond, p50, p99, generatorCpu, wrong, requests } = await bench.generators.run({
        ...place,
        headers: { ...place.headers, ...HOOK_HEADERS },
        method: 'POST',
        body: HOOK_BODY,
        expectBody: 'success',
        connections: CONNECTIONS,
        durationMs: lengthMs(bench, isWarmUp),
      })
      return { figures: { perSecond, p50, p99, generatorCpu }, wrong, units: requests }
    })
    return [
      {
        name: 'webhook',
        title: `10 KB signed POST, ${CONNECTIONS} connections`,
        note:
          'Closed loop, not corrected for coordinated omission. The upstream computes HMAC-SHA256 over the raw body and ' +
          `answers 400 to a wrong signature.${limitNote(measured)}`,
        measured,
        columns: [
          { title: 'req/s', figure: 'perSecond' },
          { title: 'of nginx', figure: 'perSecond', over: UNIT },
          { title: 'CPU us', figure: 'cpu' },
          { title: 'x nginx', figure: 'cpu', over: UNIT },
          { title: 'p50 ms', figure: 'p50' },
          { title: 'p99 ms', figure: 'p99' },
        ],
        charts: [{ title: 'CPU per webhook', unit: 'us, less is better', bars: bars(measured, 'cpu') }],
      },
    ]
  },
}
