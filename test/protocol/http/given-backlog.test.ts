/** A socket that a supervisor keeps for the next process, while there is none. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { ignore } from '../../../protocol/base/guard.ts'
import { keepSockets } from '../../support/kept-sockets.ts'
import { eventually } from '../../support/until.ts'

const LISTEN = `
import { createServer } from 'node:net'
import { listenOn } from ${JSON.stringify(resolve('protocol/http/listen-on.ts'))}
await listenOn(createServer(), { port: 0, fd: 3 }, {})
process.exit()
`

test('K1 more callers than Node lets wait can wait at it', async () => {
  const kept = await keepSockets(['public'])
  const holder = spawn('sleep', ['60'], { stdio: ['ignore', 'ignore', 'ignore', kept.fds[0]!] })
  const callers: Socket[] = []
  try {
    const args = ['--input-type=module', '--eval', LISTEN]
    const listener = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit', kept.fds[0]!] })
    kept.release()
    expect((await once(listener, 'exit'))[0]).toBe(0)
    let connected = 0
    for (let i = 0; i < 600; i++) {
      const caller = connect(kept.ports[0]!, '127.0.0.1', () => connected++)
      callers.push(caller.on('error', ignore))
    }
    await eventually(() => expect(connected).toBe(600))
  } finally {
    for (const caller of callers) caller.destroy()
    holder.kill()
  }
})
