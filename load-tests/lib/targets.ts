/** This project's performance targets, as ratios within one run on a machine with two cores, and how far they are met. */
import type { Measured } from './measure.ts'
import { number, type Section } from './section.ts'

interface Target {
  readonly about: string
  readonly section: string
  readonly figure: string
  /** Key of the row. Default `tunnel`. */
  readonly row?: string
  /** Key of the row that it is a multiple or a share of. */
  readonly of?: string
  readonly unit?: string
  readonly better: 'less' | 'more'
  readonly must: number
  readonly goal: number
}

const TARGETS: readonly Target[] = [
  {
    ...{ about: 'CPU per request, 64 connections, of one nginx hop', section: 'small-64', figure: 'cpu', of: 'nginx' },
    ...{ better: 'less', must: 3, goal: 2 },
  },
  {
    ...{ about: 'requests per second, the same', section: 'small-64', figure: 'perSecond', of: 'nginx' },
    ...{ better: 'more', must: 0.5, goal: 0.8 },
  },
  {
    ...{ about: 'p50 at 1 connection, of one nginx hop', section: 'small-1', figure: 'p50', of: 'nginx' },
    ...{ better: 'less', must: 3.5, goal: 2.5 },
  },
  {
    ...{ about: 'p99 at 1 connection, of one nginx hop', section: 'small-1', figure: 'p99', of: 'nginx' },
    ...{ better: 'less', must: 10, goal: 5 },
  },
  {
    ...{ about: 'bulk down, MB/s of one nginx hop', section: 'bulk-down', figure: 'mbPerSecond', of: 'nginx' },
    ...{ better: 'more', must: 0.4, goal: 0.6 },
  },
  {
    ...{ about: 'bulk down, CPU per MB of one nginx hop', section: 'bulk-down', figure: 'cpu', of: 'nginx' },
    ...{ better: 'less', must: 4, goal: 3 },
  },
  {
    ...{ about: 'bulk up, MB/s of one nginx hop', section: 'bulk-up', figure: 'mbPerSecond', of: 'nginx' },
    ...{ better: 'more', must: 0.4, goal: 0.6 },
  },
  {
    ...{ about: 'bulk up, CPU per MB of one nginx hop', section: 'bulk-up', figure: 'cpu', of: 'nginx' },
    ...{ better: 'less', must: 4, goal: 3 },
  },
  {
    ...{ about: 'bulk over 50 ms and 50 MB/s, of plain TCP', section: 'wan', figure: 'mbPerSecond', of: 'plain' },
    ...{ better: 'more', must: 0.95, goal: 0.98 },
  },
  {
    ...{ about: 'small beside it, p99 over the round trip', section: 'wan', figure: 'overRoundTrip', unit: 'ms' },
    ...{ better: 'less', must: 25, goal: 10 },
  },
  {
    ...{ about: 'small beside bulk on loopback, p99 of nginx', section: 'mixed', figure: 'p99', of: 'nginx' },
    ...{ better: 'less', must: 1.2, goal: 0.8 },
  },
  {
    ...{
      about: 'idle session of 2,000, RSS of the server',
      section: 'idle-2000',
      figure: 'rssKb',
      row: 'sallyport',
      unit: 'KB',
    },
    ...{ better: 'less', must: 72, goal: 60 },
  },
  {
    ...{ about: 'the same of 10,000', section: 'idle-10000', figure: 'rssKb', row: 'sallyport', unit: 'KB' },
    ...{ better: 'less', must: 72, goal: 60 },
  },
  {
    ...{ about: '10,000 idle sessions, CPU', section: 'idle-10000', figure: 'cpuShare', row: 'sallyport', unit: '%' },
    ...{ better: 'less', must: 10, goal: 6 },
  },
  {
    ...{ about: 'storm: all reconnected', section: 'storm', figure: 'all', row: 'sallyport', unit: 's' },
    ...{ better: 'less', must: 60, goal: 60 },
  },
  {
    ...{ about: 'storm: 95 % reconnected', section: 'storm', figure: 'most', row: 'sallyport', unit: 's' },
    ...{ better: 'less', must: 60, goal: 15 },
  },
  {
    ...{ about: 'storm: event-loop delay, p99', section: 'storm', figure: 'delayP99', row: 'sallyport', unit: 'ms' },
    ...{ better: 'less', must: 250, goal: 250 },
  },
]

export interface Assessed {
  readonly about: string
  readonly must: string
  readonly goal: string
  readonly measured: string
  readonly reached: 'goal' | 'must' | 'no'
}

/** The targets for which the sections have figures. */
export function assess(sections: readonly Section[]): Assessed[] {
  return TARGETS.flatMap(target => {
    const value = find(target, sections)
    if (value === undefined || Number.isNaN(value)) return []
    const holds = (limit: number) => (target.better === 'less' ? value <= limit : value >= limit)
    const show = (each: number) => `${number(each)}${target.of === undefined ? ` ${target.unit}` : 'x'}`
    const reached = holds(target.goal) ? 'goal' : holds(target.must) ? 'must' : 'no'
    return [{ about: target.about, must: show(target.must), goal: show(target.goal), measured: show(value), reached }]
  })
}

function find({ section, figure, row = 'tunnel', of }: Target, sections: readonly Section[]): number | undefined {
  const measured: readonly Measured[] = sections.find(each => each.name === section)?.measured ?? []
  const value = (key: string) => measured.find(each => each.key === key)?.figures[figure]?.median
  const own = value(row)
  if (of === undefined || own === undefined) return own
  const unit = value(of)
  return unit === undefined || unit === 0 ? undefined : own / unit
}
