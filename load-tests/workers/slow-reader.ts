/** Slow downloads: each reads a few kilobytes every 100 ms, for the given time. */
import { dial, requestText } from '../lib/http1-client.ts'
import type { Place } from '../lib/load.ts'
import { serveTasks } from '../lib/worker.ts'

export interface SlowTask extends Place {
  readonly streams: number
  readonly bytesPerSecond: number
  readonly durationMs: number
}

export interface SlowResult {
  readonly bytes: number
  /** Downloads that broke while they were being read. */
  readonly wrong: number
}

const STEP_MS = 100

serveTasks<SlowTask, SlowResult>(async task => {
  const sums = { bytes: 0, wrong: 0 }
  await Promise.all(Array.from({ length: task.streams }, () => read(task, sums)))
  return sums
})

function read(task: SlowTask, sums: { bytes: number; wrong: number }): Promise<void> {
  return new Promise(resolve => {
    const socket = dial(task, () => socket.write(requestText(task, 'GET', { connection: 'close' })))
    const step = (task.bytesPerSecond * STEP_MS) / 1000
    let isOver = false
    let taken = 0
    socket.pause()
    const timer = setInterval(() => {
      taken = 0
      socket.resume()
    }, STEP_MS)
    socket.on('data', (chunk: Buffer) => {
      sums.bytes += chunk.length
      taken += chunk.length
      if (taken >= step) socket.pause()
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      clearInterval(timer)
      if (!isOver) sums.wrong++
      resolve()
    })
    setTimeout(() => {
      isOver = true
      socket.destroy()
    }, task.durationMs)
  })
}
