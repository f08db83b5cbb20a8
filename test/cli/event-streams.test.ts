/** Event streams through real processes: callers that leave cut nothing; the service and a router that stops do. */
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer, get, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, test } from 'vitest'
import { eventually } from '../support/until.ts'
import { ADMIN, useMachine } from './machine.ts'
import type { Running } from './process.ts'

const machine = useMachine()
const { file } = machine

const streams: ServerResponse[] = []
const service = createServer((_request, response) => {
  streams.push(response)
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write('data: 1\n\n')
})
afterAll(() => service.close())

/** A caller that has got the first event. */
async function listen(door: string) {
  const asked = get(`http://${door}/`, { headers: { host: 'demo.tunnels.localhost' }, agent: false })
  const [response] = await once(asked, 'response')
  response.on('error', () => {})
  await once(response, 'data')
  return asked.on('error', () => {})
}

/** `cut`: how many responses; `codes`: of all exchanges, how many had each. */
async function counted(component: Running) {
  const body = await (await fetch(`http://${await component.address('health')}/metrics`)).text()
  const cut = Number(/^sallyport_exchanges_cut_total (\d+)$/m.exec(body)![1])
  const rows = body.matchAll(/^sallyport_exchanges_total\{.*error_type="([^"]+)".*\} (\d+)$/gm)
  return { cut, codes: Object.fromEntries([...rows].map(([, code, count]) => [code!, Number(count)])) }
}

const levels = (component: Running) =>
  component.lines.filter(({ msg }) => msg === 'exchange').map(({ level, code, cut }) => `${level} ${code} ${cut}`)

test('what is counted and logged as cut', async () => {
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  const target = `http://127.0.0.1:${(service.address() as AddressInfo).port}`
  writeFileSync(file('routes.yaml'), `routes:\n  - { name: events, match: { path: / }, target: "${target}" }\n`)
  const common = ['--health.listen', '127.0.0.1:0', '--log.access', 'all']
  const routes = ['--routes', file('routes.yaml'), ...ADMIN]
  const router = machine.start(['router', '--listen', '127.0.0.1:0', ...routes, ...common, '--grace', '2s'])
  const server = machine.start(machine.serverArgs(...common))
  await machine.writeToken('token', { runtime: 'demo' })
  const client = machine.start([
    ...['client', '--server', `wss://${await server.address('control')}`, '--ca', file('ca.pem')],
    ...['--token.file', file('token'), ...routes, ...common],
  ])
  await client.line(line => line.msg === 'connected')
  const doors = [await server.address('public'), await router.address('router')]
  const all = [server, client, router]

  for (const door of doors) {
    for (const leave of ['destroy', 'reset']) {
      const caller = await listen(door)
      if (leave === 'destroy') caller.destroy()
      else caller.socket!.resetAndDestroy()
    }
  }
  for (const one of all) await eventually(async () => expect((await counted(one)).codes).toEqual({ cancelled: 2 }))
  for (const one of all) {
    expect((await counted(one)).cut).toBe(0)
    // A line is read from its pipe later than what counts it is asked for.
    await eventually(() => expect(levels(one)).toEqual(['info cancelled false', 'info cancelled false']))
  }

  for (const door of doors) {
    const caller = await listen(door)
    streams.at(-1)!.destroy()
    await once(caller, 'close')
  }
  for (const one of all) {
    await eventually(async () =>
      expect(await counted(one)).toEqual({ cut: 1, codes: { cancelled: 2, 'upstream-broken': 1 } }),
    )
    await eventually(() => expect(levels(one).at(-1)).toBe('warn upstream-broken true'))
  }

  await listen(doors[1]!)
  await router.end('SIGTERM')
  await eventually(() => expect(levels(router).at(-1)).toBe('warn shutting-down true'))
})
