import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { BulkResult, BulkTask } from '../lib/bulk-worker.ts'
import { interleaved } from '../lib/measure.ts'
import { cell, ratio, type Section, wrongCell } from '../lib/report.ts'
import type { Bench, Scenario } from './scenario.ts'

const WORKER = fileURLToPath(new URL('../lib/bulk-worker.ts', import.meta.url))
const BYTES = 100 * 1024 * 1024

export async function transfer(task: BulkTask): Promise<BulkResult> {
  const child = spawn(process.execPath, [WORKER, JSON.stringify(task)], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  child.stdout.setEncoding('utf8').on('data', part => {
    text += part
  })
  await once(child, 'close')
  return JSON.parse(text) as BulkResult
}

/** 100 MiB down and up on one connection, every byte compared. */
export const bulk: Scenario = {
  name: 'bulk',
  title: '100 MiB down and up',
  async run(bench) {
    return [await direction(bench, 'down'), await direction(bench, 'up')]
  },
}

async function direction(bench: Bench, direction: 'down' | 'up'): Promise<Section> {
  const measured = await interleaved(
    bench.roads,
    bench.rounds,
    async road => {
      const result = await transfer({
        url: `${road.url}/${direction === 'down' ? '100mb' : 'sink'}`,
        headers: road.headers,
        bytes: BYTES,
        direction,
        ...(road.ca === undefined ? {} : { ca: road.ca }),
      })
      const mb = BYTES / 1e6
      return { figures: { mbPerSecond: mb / (result.durationMs / 1000) }, wrong: result.wrong, units: mb }
    },
    text => bench.progress(`bulk ${direction}: ${text}`),
  )
  const unit = measured.find(each => each.road === 'nginx hop') ?? measured[0]!
  return {
    name: `bulk-${direction}`,
    title: `100 MiB ${direction}, one connection`,
    note: 'Every byte that comes down is compared. CPU is per MB, over the processes of the road.',
    columns: ['road', 'MB/s', 'of nginx', 'CPU us/MB', 'x nginx', 'wrong'],
    rows: measured.map(({ road, figures, wrong }) => [
      { text: road },
      cell(figures.mbPerSecond!),
      ratio(figures.mbPerSecond!.median / unit.figures.mbPerSecond!.median),
      cell(figures.cpu!),
      ratio(figures.cpu!.median / unit.figures.cpu!.median),
      wrongCell(wrong),
    ]),
    charts: [
      {
        title: `100 MiB ${direction}`,
        unit: 'MB/s, more is better',
        bars: measured.map(({ road, figures }) => ({
          label: road,
          value: figures.mbPerSecond!.median,
          ours: /tunnel|ingress/.test(road),
        })),
      },
    ],
    wrong: measured.reduce((sum, each) => sum + each.wrong, 0),
    data: measured,
  }
}
