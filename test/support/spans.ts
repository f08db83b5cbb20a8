/** Spans that a test gathers, and how it writes them down: a waterfall, whose ids are left out. */

import type { FinishedSpan, Span, Tracer } from '../../protocol/trace/span.ts'
import { createTracer } from '../../protocol/trace/tracer.ts'

/** A walk makes any number of them. */
const MOST = 10_000

export class Spans {
  readonly finished: FinishedSpan[] = []
  /** Spans that have begun and not ended. */
  open = 0
  readonly #waiting: (() => void)[] = []
  readonly #own = createTracer(span => this.#add(span))
  readonly tracer: Tracer = {
    add: span => this.#add(span),
    start: (name, kind, parent) => this.#counted(this.#own.start(name, kind, parent)),
  }

  #add(span: FinishedSpan): void {
    this.finished.push(span)
    if (this.finished.length > MOST) this.finished.shift()
    for (const wake of this.#waiting.splice(0)) wake()
  }

  #counted(span: Span): Span {
    this.open++
    let ended = false
    return {
      ...{ context: span.context, startMs: span.startMs },
      child: (name, kind) => this.#counted(span.child(name, kind)),
      rename: name => span.rename(name),
      set: (name, value) => span.set(name, value),
      link: context => span.link(context),
      end: error => {
        if (!ended) this.open--
        ended = true
        span.end(error)
      },
    }
  }

  /** Resolves once a span of this name is over. */
  async named(name: string): Promise<FinishedSpan> {
    for (;;) {
      const found = this.finished.find(span => span.name === name)
      if (found !== undefined) return found
      await new Promise<void>(resolve => this.#waiting.push(resolve))
    }
  }
}

/**
 * A line for each span, below its parent and in the order of their beginnings: name, kind, whether it failed, links, and those of its
 * attributes that `shown` names.
 */
export function waterfall(spans: readonly FinishedSpan[], ...shown: readonly string[]): string[] {
  const ids = new Set(spans.map(span => span.spanId))
  const lines: string[] = []
  const add = (span: FinishedSpan, depth: number) => {
    const said = shown.filter(name => name in span.attributes).map(name => `${name}=${span.attributes[name]}`)
    const links = span.links.map(({ spanId }) => `-> ${spans.find(other => other.spanId === spanId)?.name ?? spanId}`)
    const words = [span.name, span.kind, ...(span.failed ? ['FAILED'] : []), ...links, ...said]
    lines.push(`${'  '.repeat(depth)}${words.join(' ')}`)
    for (const child of below(span.spanId)) add(child, depth + 1)
  }
  const below = (id: string) => inOrder(spans.filter(({ parentId }) => parentId === id))
  for (const root of inOrder(spans.filter(({ parentId = '' }) => !ids.has(parentId)))) add(root, 0)
  return lines
}

function inOrder(spans: FinishedSpan[]): FinishedSpan[] {
  return spans.sort((a, b) => a.startMs - b.startMs)
}
