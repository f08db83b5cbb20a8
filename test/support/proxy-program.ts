/** A reverse proxy of somebody else's, as a process of a test. */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'

export interface ProxyProgram {
  readonly port: number
  stop(): Promise<void>
}

/** Starts a program that stays in the foreground; resolves when it listens on `port`. */
export async function startProxyProgram(program: string, args: readonly string[], port: number): Promise<ProxyProgram> {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  const gone = once(child, 'exit')
  let said = ''
  child.stderr.on('data', text => {
    said = (said + text).slice(-2000)
  })
  await untilOpen(port, child).catch(error => {
    throw new Error(`${program}: ${error.message}: ${said}`)
  })
  const stop = async () => {
    if (child.exitCode === null) child.kill('SIGTERM')
    await gone
  }
  return { port, stop }
}

/** Such a program cannot be given port 0. */
export async function freePort(): Promise<number> {
  for (;;) {
    // Below those that Linux gives to other programs meanwhile.
    const port = randomInt(10_000, 32_000)
    const server = createServer().listen(port, '127.0.0.1')
    const isFree = await once(server, 'listening').then(
      () => true,
      () => false,
    )
    if (!isFree) continue
    server.close()
    await once(server, 'close')
    return port
  }
}

/** It does not say when it listens. */
async function untilOpen(port: number, child: ChildProcess): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`)
    const socket = connect(port, '127.0.0.1')
    const opened = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false)
    socket.destroy()
    if (opened) return
  }
}
