/** A listener in a process that may open few files. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'
import { ignore } from '../../../protocol/base/guard.ts'
import { eventually } from '../../support/until.ts'

const MOST_FILES = 256
const LISTEN = `
import { listen } from ${JSON.stringify(resolve('protocol/http/listener.ts'))}
import { ok, recorder } from ${JSON.stringify(resolve('test/protocol/http/http1/raw.ts'))}
const log = level => (fields, message) => process.stdout.write(level + ' ' + JSON.stringify(fields) + ' ' + message + '\\n')
const logger = { debug() {}, info: log('info'), warn: log('warn'), error: log('error') }
const { handler } = recorder(({ response }) => ok(response))
const { address } = await listen({ port: 0, host: '127.0.0.1', handler, logger })
process.stdout.write('port ' + address.port + '\\n')
`

test.runIf(process.platform === 'linux')('a network that opens more connections leaves others some', async () => {
  const command = `ulimit -n ${MOST_FILES} && exec "$0" --input-type=module --eval "$1"`
  const child = spawn('sh', ['-c', command, process.execPath, LISTEN], { stdio: ['ignore', 'pipe', 'inherit'] })
  const sockets: Socket[] = []
  const call = (port: number, localAddress: string) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress }).on('error', ignore)
    sockets.push(socket)
    return socket
  }
  try {
    let out = ''
    child.stdout.on('data', chunk => (out += chunk))
    await eventually(() => expect(out).toContain('port '))
    expect(out).toMatch(/^warn \{"most":128,"maxConnections":10000\} the listener takes fewer connections/)
    const port = Number(/^port (\d+)$/m.exec(out)![1])
    for (let n = 0; n < 2 * MOST_FILES; n++) await once(call(port, '127.0.0.66'), 'connect')
    const other = call(port, '127.0.0.7')
    other.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n')
    let answer = ''
    other.on('data', chunk => (answer += chunk))
    await eventually(() => expect(answer).toMatch(/^HTTP\/1\.1 200 /))
  } finally {
    for (const socket of sockets) socket.destroy()
    child.kill()
  }
})
