/** What an inbox costs, both while all is well and when it stores each webhook while the client is offline. */
import { stopSetups } from '../setups/index.ts'
import { type Setup, withPath } from '../setups/setup.ts'
import { HOOK_BODY, HOOK_HEADERS, PATHS } from '../upstream/service.ts'
import { bars, lengthMs, measureSetups, type Scenario } from './scenario.ts'

const CONNECTIONS = 32

const ROWS = [
  { key: 'tunnel', name: 'tunnel, no inbox', inbox: undefined, expect: 200 },
  { key: 'tunnel-inbox', name: 'tunnel, inbox, client online', inbox: 'fallback', expect: 200 },
  { key: 'tunnel-inbox-away', name: 'tunnel, inbox, client offline', inbox: 'away', expect: 202 },
] as const

export const inbox: Scenario = {
  name: 'inbox',
  title: '10 KB signed POST, with and without an inbox',
  modes: ['smoke', 'full'],
  async run(bench) {
    const setups: (Setup & { expect: number })[] = []
    try {
      for (const { inbox, expect, ...row } of ROWS) {
        const made = await bench.setups.make(['tunnel'], inbox === undefined ? {} : { inbox })
        setups.push(...made.map(setup => ({ ...setup, ...row, expect })))
      }
      const measured = await measureSetups(bench, 'inbox', setups, async (setup, isWarmUp) => {
        const place = withPath(setup, PATHS.hook)
        const expectStatus = setups.find(({ key }) => key === setup.key)!.expect
        const { perSecond, p50, p99, generatorCpu, wrong, requests } = await bench.generators.run({
          ...place,
          headers: { ...place.headers, ...HOOK_HEADERS },
          ...{ method: 'POST', body: HOOK_BODY, expectStatus, connections: CONNECTIONS },
          durationMs: lengthMs(bench, isWarmUp),
        })
        return { figures: { perSecond, p50, p99, generatorCpu }, wrong, units: requests }
      })
      return [
        {
          name: 'inbox',
          title: `10 KB signed POST, ${CONNECTIONS} connections, with and without an inbox`,
          note:
            'The store is SQLite in the temporary folder, in WAL mode and synced before each 202. CPU is that of server and ' +
            'client. In the last row, the client is not running.',
          measured,
          columns: [
            { title: 'req/s', figure: 'perSecond' },
            { title: 'CPU us', figure: 'cpu' },
            { title: 'x no inbox', figure: 'cpu', over: 'tunnel' },
            { title: 'p50 ms', figure: 'p50' },
            { title: 'p99 ms', figure: 'p99' },
          ],
          charts: [{ title: 'CPU per webhook', unit: 'us, less is better', bars: bars(measured, 'cpu') }],
        },
      ]
    } finally {
      await stopSetups(setups)
    }
  },
}
