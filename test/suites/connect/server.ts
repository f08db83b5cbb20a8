/**
 * A "server under test" for Connect's runner: the suite's own server, reached through a pair.
 *
 *     node server.ts REFERENCE-SERVER
 *
 * The edge has TLS where the runner wants it; behind the client it is HTTP/1.1 or h2c.
 */
import { spawn } from 'node:child_process'
import { startTarget } from '../target.ts'
import { readMessage, readPort, readWish, writePlace, writePlainWish } from './messages.ts'

const [program = ''] = process.argv.slice(2)
const wish = readWish(await readMessage(process.stdin))
const reference = spawn(program, { stdio: ['pipe', 'pipe', 'inherit'] })
process.on('exit', () => reference.kill())
// Also a start that takes too long.
process.once('SIGTERM', () => process.exit(0))
reference.stdin.end(writePlainWish(wish))
const upstream = readPort(await readMessage(reference.stdout))

const edge = wish.tls === undefined ? { port: 0 } : { port: 0, tls: wish.tls }
const target = await startTarget(
  () => ({ public: edge }),
  `${wish.httpVersion === 2 ? 'h2c' : 'http'}://127.0.0.1:${upstream}`,
)
process.stdout.write(writePlace(target.edgePort, wish.tls?.cert))
