// SPDX-FileCopyrightText: 2026 The Residency authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Each policy as simply as it can be said, for comparison: linear searches, one structure a request, nothing shared with the
// library.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <vector>

namespace reference {

struct Request {
    std::uint32_t object;
    std::uint64_t bytes;
};
struct Counts {
    std::uint64_t misses = 0;
    std::uint64_t missed_bytes = 0;
    friend bool operator==(const Counts&, const Counts&) = default;
};

inline std::uint64_t sum(const std::list<Request>& queue) {
    std::uint64_t bytes = 0;
    for (const Request& each : queue) { bytes += each.bytes; }
    return bytes;
}
inline std::list<Request>::iterator find(std::list<Request>& queue, std::uint32_t object) {
    return std::find_if(queue.begin(), queue.end(), [&](const Request& each) { return each.object == object; });
}

/// LRU and FIFO: the front of the list leaves.
inline Counts queue_cache(const std::vector<Request>& requests, std::uint64_t capacity, bool moves_on_hit) {
    Counts counts;
    std::list<Request> queue;
    for (const Request& request : requests) {
        if (const auto found = find(queue, request.object); found != queue.end()) {
            if (moves_on_hit) { queue.splice(queue.end(), queue, found); }
            continue;
        }
        ++counts.misses;
        counts.missed_bytes += request.bytes;
        if (request.bytes > capacity) { continue; }
        while (sum(queue) + request.bytes > capacity) { queue.pop_front(); }
        queue.push_back(request);
    }
    return counts;
}
inline Counts lru(const std::vector<Request>& requests, std::uint64_t capacity) {
    return queue_cache(requests, capacity, true);
}
inline Counts fifo(const std::vector<Request>& requests, std::uint64_t capacity) {
    return queue_cache(requests, capacity, false);
}

/// Policies that evict the smallest of (score, time of the last use).
template <class Score, class Left>
Counts scored_cache(const std::vector<Request>& requests, std::uint64_t capacity, Score score, Left left) {
    struct Entry {
        std::uint64_t bytes, uses, last;
        double score;
    };
    Counts counts;
    std::map<std::uint32_t, Entry> cache;
    for (std::uint64_t now = 0; now < requests.size(); ++now) {
        const Request& request = requests[now];
        if (const auto found = cache.find(request.object); found != cache.end()) {
            ++found->second.uses;
            found->second.last = now;
            found->second.score = score(now, found->second.uses, request.bytes);
            continue;
        }
        ++counts.misses;
        counts.missed_bytes += request.bytes;
        if (request.bytes > capacity) { continue; }
        for (;;) {
            std::uint64_t held = 0;
            for (const auto& each : cache) { held += each.second.bytes; }
            if (held + request.bytes <= capacity) { break; }
            auto worst = cache.begin();
            for (auto each = cache.begin(); each != cache.end(); ++each) {
                if (each->second.score < worst->second.score ||
                    (each->second.score == worst->second.score && each->second.last < worst->second.last)) {
                    worst = each;
                }
            }
            left(worst->second.score);
            cache.erase(worst);
        }
        cache[request.object] = {request.bytes, 1, now, score(now, 1, request.bytes)};
    }
    return counts;
}
inline Counts lfu(const std::vector<Request>& requests, std::uint64_t capacity) {
    return scored_cache(
        requests, capacity, [](std::uint64_t, std::uint64_t uses, std::uint64_t) { return static_cast<double>(uses); },
        [](double) {});
}
inline Counts gdsf(const std::vector<Request>& requests, std::uint64_t capacity) {
    double clock = 0;
    return scored_cache(
        requests, capacity,
        [&](std::uint64_t, std::uint64_t uses, std::uint64_t bytes) {
            return clock + static_cast<double>(uses) / static_cast<double>(bytes);
        },
        [&](double score) { clock = score; });
}
inline Counts belady(const std::vector<Request>& requests, std::uint64_t capacity) {
    return scored_cache(
        requests, capacity,
        [&](std::uint64_t now, std::uint64_t, std::uint64_t) {
            for (std::uint64_t later = now + 1; later < requests.size(); ++later) {
                if (requests[later].object == requests[now].object) { return -static_cast<double>(later); }
            }
            return -std::numeric_limits<double>::infinity();
        },
        [](double) {});
}

/// SIEVE: the list from the newest to the oldest, the hand an object in it.
inline Counts sieve(const std::vector<Request>& requests, std::uint64_t capacity) {
    Counts counts;
    std::vector<Request> queue;  // the oldest first
    std::map<std::uint32_t, bool> visited;
    std::size_t hand = 0;
    for (const Request& request : requests) {
        if (visited.contains(request.object)) {
            visited[request.object] = true;
            continue;
        }
        ++counts.misses;
        counts.missed_bytes += request.bytes;
        if (request.bytes > capacity) { continue; }
        for (;;) {
            std::uint64_t held = 0;
            for (const Request& each : queue) { held += each.bytes; }
            if (held + request.bytes <= capacity) { break; }
            for (;;) {
                if (hand >= queue.size()) { hand = 0; }
                if (!visited[queue[hand].object]) { break; }
                visited[queue[hand++].object] = false;
            }
            visited.erase(queue[hand].object);
            queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(hand));
            // The hand now stands at the next newer one, or past the newest: an object that comes now is not the next one.
            if (hand == queue.size()) { hand = std::numeric_limits<std::size_t>::max(); }
        }
        queue.push_back(request);
        visited[request.object] = false;
    }
    return counts;
}

/// S3-FIFO: the pseudocode of the paper, bytes for objects; the counter is cleared on the way from the small to the main queue.
inline Counts s3_fifo(const std::vector<Request>& requests, std::uint64_t capacity) {
    Counts counts;
    std::list<Request> small, main, ghost;  // the oldest first
    std::map<std::uint32_t, int> uses;
    const auto evict_main = [&] {
        while (!main.empty()) {
            const Request oldest = main.front();
            main.pop_front();
            if (uses[oldest.object] == 0) {
                uses.erase(oldest.object);
                return true;
            }
            --uses[oldest.object];
            main.push_back(oldest);
        }
        return false;
    };
    const auto evict_small = [&] {
        while (!small.empty()) {
            const Request oldest = small.front();
            small.pop_front();
            if (uses[oldest.object] <= 1) {
                uses.erase(oldest.object);
                ghost.push_back(oldest);
                while (10 * sum(ghost) > 9 * capacity) { ghost.pop_front(); }
                return true;
            }
            uses[oldest.object] = 0;
            main.push_back(oldest);
        }
        return false;
    };
    for (const Request& request : requests) {
        if (const auto found = uses.find(request.object); found != uses.end()) {
            found->second = std::min(found->second + 1, 3);
            continue;
        }
        ++counts.misses;
        counts.missed_bytes += request.bytes;
        if (request.bytes > capacity) { continue; }
        while (sum(small) + sum(main) + request.bytes > capacity) {
            const bool from_small = 10 * sum(small) >= capacity && evict_small();
            if (!from_small && !evict_main()) { evict_small(); }
        }
        if (const auto known = find(ghost, request.object); known != ghost.end()) {
            ghost.erase(known);
            main.push_back(request);
        } else {
            small.push_back(request);
        }
        uses[request.object] = 0;
    }
    return counts;
}

}  // namespace reference
