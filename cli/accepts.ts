import { connect } from 'node:net'
import { guardWith } from '../protocol/base/guard.ts'
import type { HostPort } from '../protocol/base/host-port.ts'

const DEADLINE_MS = 1000

/** Whether something accepts connections there, within a second. */
export function accepts({ host, port }: HostPort): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect({ host, port, timeout: DEADLINE_MS })
    const guard = guardWith(() => socket.destroy())
    const over = (answers: boolean) => {
      socket.destroy()
      resolve(answers)
    }
    const accepted = guard(() => over(true))
    const failed = guard(() => over(false))
    socket.once('connect', accepted)
    socket.on('error', failed)
    socket.once('timeout', failed)
  })
}
